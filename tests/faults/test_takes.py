"""Answers of a language model that go on to a spreadsheet, while an executor is killed in the middle."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from jobs.models import DeadLetter, Dependency, Job
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from tests.factories import make_project
from tests.faults.clusters import cluster, kill
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, wait_until_drained
from tests.sandbox.providers import SheetsClient
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox

ROWS = 60


def open_credentials(url: str) -> None:
    project = make_project(PROJECT)
    secrets: dict[str, tuple[str, Any]] = {
        "model": ("llm", {"api_key": f"project:{PROJECT}/user:robot"}),
        "sheet": ("google-sheets", {"access_token": f"project:{PROJECT}/user:robot"}),
    }
    for name, (service, secret) in secrets.items():
        made = Credential.objects.create(name=name, service=service, secret=seal(secret), base_url=url)
        made.projects.add(project)


def lines() -> list[dict[str, Any]]:
    """For each row a question, a write of its answer to a row of its own, and one that adds a row."""
    made: list[dict[str, Any]] = []
    for n in range(1, ROWS + 1):
        asked = {
            "provider": "openai",
            "service": "llm",
            "credential": "model",
            "model": "small-1",
            "prompt": f"Row {n}?",
        }
        made.append({"kind": "llm.generate", "payload": asked, "idempotency_key": f"ask-{n}"})
        values = [[f"row-{n}", {"$from": {"job": f"ask-{n}", "path": "usage.output_tokens"}}]]
        for kind, sheet, place in (("update", "exact", f"Sheet1!A{n}:B{n}"), ("append", "added", "Sheet1")):
            payload = {"credential": "sheet", "spreadsheet_id": sheet, "range": place, "values": values}
            line = {"kind": f"google_sheets.values_{kind}", "payload": payload, "after": [f"ask-{n}"]}
            made.append({**line, "idempotency_key": f"{kind}-{n}"})
    return made


def rows_of(sandbox: Sandbox, sheet: str) -> list[list[Any]]:
    client = SheetsClient(sandbox.url, sheet, f"project:{PROJECT}/user:robot")
    found: list[list[Any]] = client.get("A1:B200", valueRenderOption="UNFORMATTED_VALUE").json().get("values", [])
    return found


@pytest.mark.usefixtures("transactional_db")
def test_each_answer_is_in_its_row_once_though_an_executor_is_killed_in_the_middle(sandbox: Sandbox, ledger: Ledger):
    unlimited = dict.fromkeys(("reads_per_project", "writes_per_project", "reads_per_user", "writes_per_user"))
    sandbox.turn(
        # On a slow host, faster answers would all be there before this process sees the first.
        latency={"mode": "uniform", "low_milliseconds": 200, "high_milliseconds": 800},
        google_sheets=unlimited,
        openai={"output_tokens": 5, "requests_per_minute": 10_000},
    )
    open_credentials(sandbox.url)
    answered = Job.objects.filter(kind="llm.generate", status=JobState.COMPLETED)
    written = Job.objects.filter(service="google-sheets", status=JobState.COMPLETED)
    with cluster(ledger, executors=2, executor_slots=2, allow_loopback_targets="on") as running:
        submit_batch(lines(), project_id=PROJECT, actor="key:test")
        wait_for(lambda: answered.count() >= ROWS // 4 and written.exists(), what="the first rows")
        victim = running.general()[0]
        wait_for(
            lambda: Job.objects.filter(executor=victim.pk, status=JobState.IN_PROGRESS).exists(),
            what="work of the victim",
        )
        kill(victim)
        assert answered.count() < ROWS
        sandbox.turn(latency={"mode": "uniform", "low_milliseconds": 20, "high_milliseconds": 80})
        wait_until_drained()
        repeated = submit_batch(lines(), project_id=PROJECT, actor="key:test")
    assert repeated.duplicates == 3 * ROWS
    assert not Dependency.objects.exists()
    assert rows_of(sandbox, "exact") == [[f"row-{n}", 5] for n in range(1, ROWS + 1)]
    added = Counter(name for name, _ in rows_of(sandbox, "added"))
    assert set(added.values()) == {1}
    done, lost = (
        {job.payload["values"][0][0] for job in Job.objects.filter(kind="google_sheets.values_append", status=status)}
        for status in (JobState.COMPLETED, JobState.FAILED)
    )
    assert done <= set(added) <= done | lost
    assert done | lost == {f"row-{n}" for n in range(1, ROWS + 1)}
    assert set(DeadLetter.objects.values_list("error_code", flat=True)) <= {"outcome_unknown"}
