"""Files and batches of OpenAI's door, in the test's own process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from jobs.door import batches, files, outcomes
from jobs.door.batches import forget_batches, told_of_door
from jobs.door.lines import LineReader
from jobs.door.models import DoorBatch, DoorFile, DoorFilePart
from jobs.door.routes import save_route
from jobs.models import Batch, DeadLetter, Job
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.upkeep.batches import finish_batches
from jobs.states import JobState
from queueops.core.sealing import defused, seal_value
from queueops.core.values.written import member
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import forget_encrypted
from ratelimits.models import Price, Spend
from tests.factories import bury, move_along
from tests.support.clock import MovedClock

from .within import CHAT, Door, door_of, line

pytestmark = pytest.mark.django_db

EXOTIC = (
    '{"messages" : [{"role":"user","content":"H\\u00e9 \\u2028 é"}],  "temperature":0.70, "seed":1E2,"model":"m-1"}'
)


@pytest.fixture
def door() -> Door:
    return door_of("acme")


@pytest.fixture
def sealed(door: Door) -> Iterator[None]:
    """Payloads of acme are encrypted."""
    Project.objects.filter(pk="acme").update(encrypted=True)
    forget_encrypted()
    yield
    forget_encrypted()


def jobs_of(told: Any) -> list[Job]:
    batch = DoorBatch.objects.get(pk=told["id"].removeprefix("batch_"))
    return list(Job.objects.filter(batch_id=str(batch.batch_id)).order_by("pk"))


def told_of(door: Door, told: Any) -> Any:
    return door.send("GET", f"batches/{told['id']}").json()


def rows_of(door: Door, name: str) -> list[dict[str, Any]]:
    answer = door.send("GET", f"files/{name}/content")
    assert answer.status_code == 200, answer.content
    return [json.loads(row) for row in b"".join(answer.streaming_content).splitlines()]


def end(jobs: list[Job], edge: str) -> None:
    for one in ("dispatch", "start", edge):
        move_along(one, [job.pk for job in jobs])
    if edge == "fail":
        bury(jobs, http_status=None)
    finish_batches()


def test_a_line_is_a_job_with_its_body_as_it_was_written(door: Door):
    told = door.batch(line("a", EXOTIC), "", line("b"))
    first, second = jobs_of(told)
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload_text FROM jobs_job WHERE id = %s", [first.pk])
        assert member(cursor.fetchone()[0], "body") == EXOTIC
    assert (first.kind, first.payload["credential"], first.payload["endpoint"], first.model) == (
        "llm.call",
        "openai-key",
        CHAT,
        "m-1",
    )
    assert first.idempotency_key == f"{told['id'].removeprefix('batch_')}/a"
    assert str(second.idempotency_key).endswith("/b")


@pytest.mark.parametrize(
    ("window", "via", "hours"), [("24h", "batch", 24.5), ("1d", "batch", 24.5), ("90m", None, 1.5)]
)
def test_a_day_is_enough_for_a_batch_of_the_provider_and_less_is_what_it_says(
    *, door: Door, window: str, via: str | None, hours: float
):
    [job] = jobs_of(door.batch(line("a"), completion_window=window))
    assert job.via == via
    assert job.complete_by
    assert abs(job.complete_by - timezone.now() - timedelta(hours=hours)) < timedelta(minutes=5)


def test_lines_that_take_long_to_read_all_go_by_batch(
    door: Door, moving_clock: MovedClock, monkeypatch: pytest.MonkeyPatch
):
    job_of, now = LineReader.job_of, timezone.now

    def read_slowly(*given: Any, **named: Any) -> str:
        moving_clock.move(seconds=90)
        return job_of(*given, **named)

    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(seconds=moving_clock.seconds))
    monkeypatch.setattr(LineReader, "job_of", read_slowly)
    assert [job.via for job in jobs_of(door.batch(line("a"), line("b"), line("c")))] == ["batch"] * 3


def test_the_clock_of_the_web_host_decides_nothing(door: Door, monkeypatch: pytest.MonkeyPatch):
    ahead = timezone.now() + timedelta(minutes=10)
    monkeypatch.setattr(timezone, "now", lambda: ahead)
    assert [job.via for job in jobs_of(door.batch(line("a")))] == ["batch"]


def test_whoever_waited_for_an_equal_request_has_its_whole_window(
    door: Door, moving_clock: MovedClock, monkeypatch: pytest.MonkeyPatch
):
    name = door.upload(line("a"))
    monkeypatch.setattr(batches, "lock_request", lambda *_: moving_clock.move(seconds=600))
    assert [job.via for job in jobs_of(door.batch(file=name))] == ["batch"]


def test_the_same_batch_that_is_asked_for_again_is_the_first_one(door: Door):
    name = door.upload(line("a"))
    first = door.batch(file=name, metadata={"a": "b"})
    assert door.batch(file=name, metadata={"a": "b"})["id"] == first["id"]
    assert door.batch(file=name)["id"] != first["id"]
    assert door.batch(file=name, completion_window="23h")["id"] != first["id"]
    DoorBatch.objects.update(created_at=Now() - timedelta(minutes=11))
    assert door.batch(file=name)["id"] != first["id"]
    assert Batch.objects.count() == 4


def test_a_key_of_the_request_says_what_is_the_same(door: Door):
    given = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": door.upload(line("a"))}
    ids = [door.send("POST", "batches", json.dumps(given), Idempotency_Key=key).json()["id"] for key in ("1", "1", "2")]
    assert ids[0] == ids[1] != ids[2]
    DoorBatch.objects.update(created_at=Now() - timedelta(days=2))
    assert door.send("POST", "batches", json.dumps(given), Idempotency_Key="1").json()["id"] == ids[0]
    other = door.send("POST", "batches", json.dumps({**given, "metadata": {"a": "b"}}), Idempotency_Key="1")
    assert (other.status_code, other.json()["error"]["code"]) == (400, "idempotency_key_reused")


def test_lines_that_are_not_valid_refuse_the_file_and_are_told(door: Door):
    told = door.batch(
        line("a"),
        "[1]",
        line("b", method="GET"),
        line("c", url="/v1/embeddings"),
        line("d", colour="red"),
        line("e", '{"model": "m-1"}'),
        line("f", '{"model": "m-1", "messages": [], "stream": true}'),
        line("", '{"model": "m-1", "messages": []}'),
        line("x" * 161),
        '{"custom_id": "g", "method": "POST", "url": "/v1/chat/completions"}',
    )
    assert told["status"] == "failed"
    assert told["failed_at"]
    errors = told["errors"]["data"]
    assert [(error["line"], error["param"]) for error in errors] == [
        (2, None),
        (3, "method"),
        (4, "url"),
        (5, "colour"),
        (6, "messages"),
        (7, "body.stream"),
        (8, "custom_id"),
        (9, "custom_id"),
        (10, "body"),
    ]
    assert all(error["message"] and error["code"] for error in errors)
    assert (Job.objects.count(), Batch.objects.count()) == (0, 0)
    assert told_of(door, told)["errors"] == told["errors"]


def test_a_file_of_nothing_but_blank_lines_is_told(door: Door):
    told = door.batch("", " ")
    assert (told["status"], told["errors"]["data"][0]["code"]) == ("failed", "empty_batch")


def test_answers_and_failures_are_two_files_in_the_order_of_the_lines(door: Door):
    told = door.batch(*(line(name) for name in "abcd"))
    jobs = jobs_of(told)
    assert (told["output_file_id"], told["error_file_id"]) == (None, None)
    end([jobs[0], jobs[2]], "complete")
    end([jobs[1]], "fail")
    told = told_of(door, told)
    assert (told["status"], told["request_counts"]) == ("in_progress", {"total": 4, "completed": 2, "failed": 1})
    assert told["output_file_id"] is None
    end([jobs[3]], "complete")
    told = told_of(door, told)
    assert told["status"] == "completed"
    assert [row["custom_id"] for row in rows_of(door, told["output_file_id"])] == ["a", "c", "d"]
    [failed] = rows_of(door, told["error_file_id"])
    assert (failed["custom_id"], failed["response"]) == ("b", None)
    assert failed["error"]["code"]
    assert door.send("GET", f"files/{told['output_file_id']}").json()["purpose"] == "batch_output"
    assert door.send("DELETE", f"files/{told['output_file_id']}").status_code == 409


def test_an_answer_with_other_line_ends_stays_one_line_for_every_reader(door: Door):
    told = door.batch(line("a"))
    [job] = jobs_of(told)
    end([job], "complete")
    body = {"text": "é \u0085 \u2028 \u2029 \r\n."}
    Job.objects.filter(pk=job.pk).update(result={"body": body})
    answer = door.send("GET", f"files/{told_of(door, told)['output_file_id']}/content")
    [row] = b"".join(answer.streaming_content).decode().splitlines()
    assert json.loads(row)["response"]["body"] == body


def test_a_line_that_the_provider_refused_has_its_status(door: Door):
    told = door.batch(line("a"))
    end(jobs_of(told), "fail")
    DeadLetter.objects.update(http_status=429)
    [row] = rows_of(door, told_of(door, told)["error_file_id"])
    assert (row["response"]["status_code"], row["error"]) == (429, None)
    assert row["response"]["body"]["error"]["message"]


def test_a_line_that_was_tried_again_keeps_its_name(door: Door):
    told = door.batch(line("a"), line("b"))
    first, second = jobs_of(told)
    end([second], "complete")
    end([first], "fail")
    for edge in ("fail", "complete"):
        requeue_dead_letters([DeadLetter.objects.get(resolution=None).pk], actor="user:1")
        end(list(Job.objects.filter(status=JobState.QUEUED)), edge)
    told = told_of(door, told)
    assert told["error_file_id"] is None
    assert [row["custom_id"] for row in rows_of(door, told["output_file_id"])] == ["b", "a"]


def test_a_batch_is_cancelled_once_and_says_so(door: Door):
    told = door.batch(line("a"), line("b"))
    first, second = jobs_of(told)
    end([first], "complete")
    told = door.send("POST", f"batches/{told['id']}/cancel").json()
    assert (told["status"], bool(told["cancelling_at"])) == ("cancelling", True)
    assert door.send("POST", f"batches/{told['id']}/cancel").json()["cancelling_at"] == told["cancelling_at"]
    move_along("cancel", [second.pk])
    finish_batches()
    told = told_of(door, told)
    assert (told["status"], told["request_counts"]) == ("cancelled", {"total": 2, "completed": 1, "failed": 0})
    [row] = rows_of(door, told["error_file_id"])
    assert row["error"]["code"] == "batch_cancelled"
    refused = door.send("POST", f"batches/{told['id']}/cancel")
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")


def test_lists_are_read_page_by_page(door: Door):
    names = [door.upload(line(str(number))) for number in range(3)]
    told = door.send("GET", "files?limit=2").json()
    assert ([file["id"] for file in told["data"]], told["has_more"]) == (names[:0:-1], True)
    told = door.send("GET", f"files?after={told['last_id']}").json()
    assert ([file["id"] for file in told["data"]], told["has_more"]) == (names[:1], False)
    assert [file["id"] for file in door.send("GET", "files?order=asc&purpose=batch").json()["data"]] == names
    ids = [door.batch(file=name)["id"] for name in names]
    told = door.send("GET", "batches?limit=1").json()
    assert ([batch["id"] for batch in told["data"]], told["has_more"]) == (ids[2:], True)
    told = door.send("GET", f"batches?after={ids[2]}").json()
    assert [batch["id"] for batch in told["data"]] == [ids[1], ids[0]]
    for bad in ("limit=0", "limit=x", "limit=101", "after=x"):
        assert door.send("GET", f"batches?{bad}").status_code in (400, 404)


def test_a_file_is_kept_as_it_came_until_its_time_is_over_or_it_is_deleted(door: Door, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "FILE_PART_BYTES", 10)
    text = "\n".join(line(str(number)) for number in range(5))
    name, other = door.upload(text), door.upload(text)
    assert DoorFilePart.objects.count() > 20
    answer = door.send("GET", f"files/{name}/content")
    assert b"".join(answer.streaming_content).decode() == text
    assert door.send("GET", f"files/{name}").json()["bytes"] == len(text)
    assert door.send("DELETE", f"files/{name}").json() == {"id": name, "object": "file", "deleted": True}
    assert door.send("GET", f"files/{name}").status_code == 404
    DoorFile.objects.update(expires_at=Now())
    assert door.send("GET", f"files/{other}").status_code == 404
    assert files.forget_files() == 1
    assert DoorFilePart.objects.count() == 0


@pytest.mark.usefixtures("sealed")
def test_what_is_kept_of_a_project_that_encrypts_is_sealed(door: Door):
    name = door.upload(line("a", EXOTIC))
    assert bytes(DoorFilePart.objects.get().content).startswith(b"queueops!")
    told = door.batch(file=name, metadata={"name": "secret"})
    assert told["metadata"] == {"name": "secret"}
    with connection.cursor() as cursor:
        cursor.execute("SELECT metadata::text FROM door_doorbatch")
        assert "secret" not in cursor.fetchone()[0]
    [job] = jobs_of(told)
    assert job.payload["body"] == json.loads(EXOTIC)


def test_what_a_client_says_is_no_token_of_what_others_have_sealed(door: Door):
    """Otherwise a stolen dump could be read with any project's key."""
    token = seal_value("another's secret")
    told = door.batch(line(token), line(token), metadata={"a": token})
    told = door.send("GET", f"batches/{told['id']}").json()
    assert "another's secret" not in json.dumps(told)
    assert told["metadata"] == {"a": defused(token)}
    assert defused(token) in told["errors"]["data"][0]["message"]


def test_another_project_finds_nothing(door: Door):
    told = door.batch(line("a"))
    [job] = jobs_of(told)
    end([job], "complete")
    told = told_of(door, told)
    stranger = door_of("globex")
    for path in (
        f"batches/{told['id']}",
        f"files/{told['input_file_id']}",
        f"files/{told['input_file_id']}/content",
        f"files/{told['output_file_id']}",
        f"files/{told['output_file_id']}/content",
        f"responses/resp_{job.pk.hex}",
        f"answers/{job.pk}",
    ):
        assert door.send("GET", path).status_code == 200, path
        assert stranger.send("GET", path).status_code == 404, path
    for path in (f"batches/{told['id']}/cancel", f"responses/resp_{job.pk.hex}/cancel"):
        assert stranger.send("POST", path).status_code == 404
    assert stranger.send("DELETE", f"files/{told['input_file_id']}").status_code == 404
    for path in ("files", "batches"):
        assert stranger.send("GET", path).json()["data"] == []
    asked = {"input_file_id": told["input_file_id"], "endpoint": CHAT, "completion_window": "24h"}
    assert stranger.send("POST", "batches", json.dumps(asked)).status_code == 404


def test_a_batch_says_what_it_cost_and_what_was_saved(door: Door, admin_client: Client):
    for unit, amount in (("input_tokens", 2_000_000), ("output_tokens", 8_000_000)):
        for via, part in (("live", amount), ("batch", amount // 2)):
            given = {"provider": "openai", "model": "m-1", "unit": unit, "via": via, "valid_from": "2026-01-01T00:00Z"}
            Price.objects.create(**given, amount=part)
    told = door.batch(line("a"), line("b"))
    first, second = jobs_of(told)
    called = {
        "project_id": "acme",
        "batch_id": first.batch_id,
        "provider": "openai",
        "model": "m-1",
        "at": timezone.now(),
    }
    used = {"input_tokens": 1_000, "output_tokens": 500}
    Spend.objects.create(job_id=first.pk, token=1, via="batch", money=3_000, **called, **used)
    Spend.objects.create(job_id=second.pk, token=2, via="live", money=6_000, **called, **used)
    costs = told_of(door, told)["queueops"]
    assert (costs["cost_money"], costs["saved_money"]) == (9_000, 3_000)
    page = admin_client.get(f"/admin/jobs/batch/{first.batch_id}/change/").content.decode()
    assert "0.003 USD less than live" in page


def test_people_see_by_which_door_a_batch_came(door: Door, admin_client: Client):
    told = door.batch(line("a"), metadata={"team": "support"})
    batch = DoorBatch.objects.get().batch_id
    assert batch
    shown = told_of_door(batch)
    assert shown == f"OpenAI: {told['id']}, file in.jsonl, {CHAT} within 24h, team=support"
    assert shown in admin_client.get(f"/admin/jobs/batch/{batch}/change/").content.decode()
    [job] = jobs_of(told)
    page = admin_client.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert re.search(r"Custom id</dt>\s*<dd>a</dd>", page)


def test_what_was_refused_or_cancelled_is_made_again(door: Door):
    name = door.upload(line("a", '{"model": "other", "messages": [{}]}'))
    refused = door.batch(file=name)
    assert refused["status"] == "failed"
    given = {"pattern": "other", "provider": "openai", "credential": "openai-key"}
    save_route(None, given, project_id="acme", actor="user:1")
    made = door.batch(file=name)
    assert made["status"] == "in_progress"
    door.send("POST", f"batches/{made['id']}/cancel")
    assert door.batch(file=name)["id"] not in (made["id"], refused["id"])


def test_answers_whose_jobs_were_deleted_are_said_to_be_gone_and_their_batch_goes_in_the_end(door: Door):
    told = door.batch(line("a"), line("b"))
    jobs = jobs_of(told)
    end(jobs, "complete")
    told = told_of(door, told)
    Job.objects.filter(pk=jobs[0].pk).delete()
    answer = door.send("GET", f"files/{told['output_file_id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "results_gone")
    Job.objects.all().delete()
    Batch.objects.all().delete()
    assert told_of(door, told)["status"] == "completed"
    assert forget_batches() == 0
    DoorBatch.objects.update(created_at=Now() - timedelta(days=31))
    assert forget_batches() == 1


def test_errors_are_short_whatever_a_line_is_called(door: Door):
    long = "x" * 100_000
    told = door.batch(f'{{"{long}": 1}}', '{"\\u0000": 1}', line("a", f'{{"model": "{long}", "messages": [{{}}]}}'))
    errors = told["errors"]["data"]
    assert [error["line"] for error in errors] == [1, 2, 3]
    assert all(len(error["message"]) < 300 and len(error["param"]) <= 80 for error in errors)


def test_a_list_tells_the_first_errors_of_each(door: Door):
    told = door.batch(*["no json"] * 30)
    assert len(told["errors"]["data"]) == 30
    assert len(door.send("GET", "batches").json()["data"][0]["errors"]["data"]) == 20


def test_a_file_that_is_deleted_while_it_is_read_is_not_taken_for_a_shorter_one(door: Door):
    name = door.upload(line("a"))
    DoorFilePart.objects.all().delete()
    assert door.send("GET", f"files/{name}/content").status_code == 404


def test_people_with_a_session_are_sent_to_their_own_pages(door: Door, admin_client: Client):
    name = door.upload(line("a"))
    for path in (f"openai/v1/files/{name}/content", "openai/v1/models", "anthropic/v1/models"):
        answer = admin_client.get(f"/{path}?project=acme")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "keys_only")


def test_a_page_shows_a_batch_whose_metadata_may_not_be_read(door: Door):
    told = door.batch(line("a"), metadata={"team": "support"})
    DoorBatch.objects.update(metadata="(encrypted; you may not read it)")
    batch = DoorBatch.objects.get().batch_id
    assert batch
    assert told["id"] in told_of_door(batch)


def test_requests_of_a_body_with_line_ends_are_told_by_their_own_place(door: Door):
    params = {"model": "claude-1", "max_tokens": 9, "messages": [{"role": "user", "content": "Why?"}]}
    requests = [{"custom_id": name, "params": params} for name in ("a", "two words", "b")]
    body = json.dumps({"requests": requests}, indent=2)
    told = door.client.post("/anthropic/v1/messages/batches", body, content_type="application/json").json()
    assert "requests.1: custom_id" in told["error"]["message"]


def test_answers_that_are_too_many_for_one_file_are_not_cut(door: Door, monkeypatch: pytest.MonkeyPatch):
    told = door.batch(line("a"), line("b"))
    end(jobs_of(told), "complete")
    monkeypatch.setattr(outcomes, "MAX_TABLE_BYTES", 100)
    answer = door.send("GET", f"files/{told_of(door, told)['output_file_id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "table_too_large")


def test_a_job_that_ends_while_a_file_is_written_is_in_the_next_one(door: Door, monkeypatch: pytest.MonkeyPatch):
    told = door.batch(line("a"), line("b"))
    first, second = jobs_of(told)
    end([first], "complete")
    read = outcomes._keys_of

    def slowly(jobs: Any) -> Any:
        found = read(jobs)
        end([second], "complete")
        return found

    monkeypatch.setattr(outcomes, "_keys_of", slowly)
    batch = DoorBatch.objects.get()
    assert [one.custom_id for one in outcomes.outcomes_of(batch, answered=True)] == ["a"]
