"""The audit trail over the API: whose entries, in which order, and that a collector misses none."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from jobs.api.views import audit
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_project
from tests.support.api import faults_of
from tests.support.people import signed_in
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)  # read behind the horizon of transactions


def write(target: str = "thing", *, project: str = "acme", **fields: Any) -> AuditEntry:
    made: AuditEntry = trail.record(**{"actor": "user:1", "action": "try", **fields}, target=target, project_id=project)
    return made


def targets(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [row["target"] for row in response.json()["results"]]


@pytest.fixture
def auditor(db: None) -> Api:
    return Api(key_for("acme", scopes=["audit"]))


def test_a_key_sees_its_own_projects_entries_with_their_secrets_masked(auditor: Api) -> None:
    make_project("other")
    AuditEntry.objects.create(actor="system", action="x", target="of no project")
    write("theirs", project="other")
    entry = write("a job", reason="token=abcdef", after={"secret": "x1", "url": "u"}, moved=2)
    [row] = auditor.get("/audit/").json()["results"]
    assert row.pop("created_at")
    assert row == {
        "id": entry.pk,
        "project_id": "acme",
        "actor": "user:1",
        "action": "try",
        "target": "a job",
        "moved": 2,
        "reason": "token=••••••",
        "address": "",
        "before": None,
        "after": {"secret": "••••••", "url": "u"},
    }


def test_people_see_a_project_and_if_they_ask_everything(auditor: Api) -> None:
    make_project("other")
    write("ours")
    write("theirs", project="other")
    trail.record(actor="user:1", action="x", target="of none")
    browser = signed_in("viewer")
    assert targets(browser.get("/api/v1/audit/?project=other")) == ["theirs"]
    everything = targets(browser.get("/api/v1/audit/?project=other&all_projects=true"))
    assert everything[:3] == ["of none", "theirs", "ours"]
    assert targets(browser.get("/api/v1/audit/?project=other&all_projects=false")) == ["theirs"]
    for order in ("newest", "oldest"):
        refused = auditor.get(f"/audit/?all_projects=true&order={order}")
        assert error_of(refused, 403)["code"] == "missing_permission"


@committed
def test_it_is_narrowed_by_who_what_and_when(auditor: Api) -> None:
    first, second = write("job 1", actor="key:a", action="cancel_jobs"), write("job 2", actor="key:b")
    assert targets(auditor.get("/audit/?actor=key:a")) == ["job 1"]
    assert targets(auditor.get("/audit/?action=try")) == ["job 2"]
    assert targets(auditor.get("/audit/?target=job 1")) == ["job 1"]
    moment = second.created_at.isoformat().replace("+00:00", "Z")
    assert targets(auditor.get(f"/audit/?created_after={moment}")) == ["job 2"]
    assert targets(auditor.get(f"/audit/?created_before={moment}")) == ["job 1"]
    assert targets(auditor.get(f"/audit/?created_before={moment}&created_after={moment}")) == []
    assert first.pk < second.pk


WRONG = {
    "actr=x": "actr",
    "actor=": "actor",
    "actor=a&actor=b": "actor",
    "action=x%00": "action",
    "order=down": "order",
    "all_projects=yes": "all_projects",
    "created_after=yesterday": "created_after",
    "created_after=2026-01-01T00:00:00": "created_after",
    "page_size=501": "page_size",
    "cursor=x": "cursor",
    "cursor=OTk5OTk5OTk5OTk5OTk5OTk5OTk5": "cursor",
    "order=oldest&cursor=%C3%A9": "cursor",
}


def test_a_wrong_question_is_told_where_it_is_wrong(auditor: Api) -> None:
    assert faults_of({query: auditor.get(f"/audit/?{query}") for query in WRONG}, 400, "invalid_query", WRONG) == {}


def test_pages_go_back_from_the_newest(auditor: Api) -> None:
    for number in range(5):
        write(f"{number}")
    page = auditor.get("/audit/?page_size=2")
    assert targets(page) == ["4", "3"]
    write("5")
    assert targets(auditor.get(f"/audit/?page_size=2&cursor={page.json()['next_cursor']}")) == ["2", "1"]
    last = auditor.get("/audit/?page_size=50")
    assert last.json()["next_cursor"] is None


def collect(auditor: Api, cursor: str = "", **query: Any) -> tuple[list[str], str]:
    """What a collector gets until nothing more comes."""
    got: list[str] = []
    while True:
        asked = "&".join(f"{name}={value}" for name, value in {"order": "oldest", "page_size": 2, **query}.items())
        answer = auditor.get(f"/audit/?{asked}" + (f"&cursor={cursor}" if cursor else ""))
        found, cursor = targets(answer), answer.json()["next_cursor"]
        assert cursor
        if not found:
            return got, cursor
        got += found


@committed
def test_a_collector_goes_on_from_where_it_was(auditor: Api) -> None:
    nothing, cursor = collect(auditor)
    assert nothing == []
    for number in range(5):
        write(f"{number}")
    got, cursor = collect(auditor, cursor)
    assert got == ["0", "1", "2", "3", "4"]
    write("other", actor="key:a")
    write("5")
    assert collect(auditor, cursor, actor="user:1")[0] == ["5"]
    assert collect(auditor, cursor)[0] == ["other", "5"]


@committed
def test_a_collector_misses_no_entry_whose_transaction_is_open(auditor: Api, monkeypatch: Any) -> None:
    monkeypatch.setattr(audit, "MAX_SETTLING_SECONDS", 0.3)
    begun, may_commit = threading.Event(), threading.Event()
    write("first")
    _, cursor = collect(auditor)

    def write_late() -> None:
        with transaction.atomic():
            write("late")
            begun.set()
            assert may_commit.wait(30)
        connection.close()

    late = threading.Thread(target=write_late)
    late.start()
    assert begun.wait(30)
    write("early")
    got, cursor = collect(auditor, cursor)
    assert got == []
    assert targets(auditor.get("/audit/"))[0] == "early"
    may_commit.set()
    late.join()
    # Another database's transaction may be open, too: one server, one horizon.
    assert wait_for(lambda: collect(auditor, cursor)[0], what="both entries") == ["late", "early"]


@committed
def test_a_cursor_of_before_a_restore_is_refused(auditor: Api) -> None:
    write()
    _, cursor = collect(auditor)
    with connection.cursor() as statement:
        statement.execute("UPDATE jobs_epoch SET value = 'another'")
    assert error_of(auditor.get(f"/audit/?order=oldest&cursor={cursor}"), 410)["code"] == "other_epoch"
