"""What a client is told over a socket, and what it may say."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from django.db import connection

from dashboards.live.hub import MAX_OF_ONE, MAX_SOCKETS
from dashboards.live.messages import MAX_CLIENT_BYTES, MAX_DATA_BYTES, CloseCode
from dashboards.live.socket import MESSAGE_WINDOW
from dashboards.live.strangers import MAX_OF_ADDRESS, MAX_STRANGERS
from dashboards.live.subjects import MAX_MISSED, MAX_MISSED_IDS
from jobs.models import JobEvent
from jobs.states import JobState
from tests.factories import make_batch, make_job, make_jobs, move_along
from tests.support.event_log import log_event, writer
from tests.support.live import LiveClient
from tests.support.people import session_of
from tests.support.processes import ROOT, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def ids_of(**filters: object) -> set[int]:
    return set(JobEvent.objects.filter(**filters).values_list("id", flat=True))


def get(client: LiveClient, path: str, key: str) -> dict[str, object]:
    request = urllib.request.Request(f"{client.address}{path}", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
        found: dict[str, object] = json.load(answer)
        return found


def test_a_job_is_shown_as_it_is_and_then_every_event(client: LiveClient, key: str):
    job = make_job()
    watcher = client.watch(f"jobs/{job.pk}", key=key)
    snapshot = watcher.first("snapshot")
    assert snapshot["data"]["state"] == "queued"
    assert snapshot["data"]["id"] == str(job.pk)
    seen = ids_of()
    move_along("dispatch", [job.pk])
    move_along("start", [job.pk])
    move_along("complete", [job.pk])
    watcher.wait_for_events(ids_of() - seen)
    assert [event["to"] for event in watcher.events][-3:] == ["dispatched", "in_progress", "completed"]
    assert {event["job"] for event in watcher.events} == {str(job.pk)}
    stats = watcher.first("stats")
    wait_for(lambda: watcher.of_type("stats")[-1]["data"]["state"] == "completed", what="the end in the stats")
    assert stats["data"].keys() == snapshot["data"].keys()


def test_the_snapshot_is_what_the_api_answers(client: LiveClient, key: str):
    batch = make_batch()
    job = make_job(batch=batch)
    for path in (f"jobs/{job.pk}", f"batches/{batch.pk}"):
        shown = client.watch(path, key=key).first("snapshot")["data"]
        answered = get(client, f"/api/v1/{path}/", key)
        of_its_job = {"prices", "provider_batch"} if path.startswith("jobs/") else set()
        assert answered.keys() - shown.keys() == {"cost_money", "currency", *of_its_job}
        assert shown.keys() <= answered.keys()
        moving = {"cursor", "effective_priority"}
        assert {name: shown[name] for name in shown.keys() - moving} == {
            name: answered[name] for name in shown.keys() - moving
        }


def test_a_client_that_comes_back_gets_what_it_missed(client: LiveClient, key: str):
    batch = make_batch()
    jobs = make_jobs(3, batch=batch)
    watcher = client.watch(f"batches/{batch.pk}", key=key)
    watcher.first("snapshot")
    move_along("dispatch", [jobs[0].pk])
    wait_for(lambda: watcher.events, what="an event")
    cursor = watcher.cursor
    watcher.close()
    move_along("dispatch", [jobs[1].pk, jobs[2].pk])
    missed = ids_of(id__gt=cursor)
    back = client.watch(f"batches/{batch.pk}", key=key)
    back.first("snapshot")
    back.resume(cursor)
    back.wait_for_events(missed)
    move_along("start", [jobs[1].pk])
    back.wait_for_events(ids_of(id__gt=cursor))


def test_the_cursor_of_a_pull_resumes_a_socket(client: LiveClient, key: str):
    """Even the first pull of a process, of a log that is longer than what is searched for a batch's events."""
    batch = make_batch()
    with connection.cursor() as database:
        database.execute("SELECT setval('jobs_jobevent_id', nextval('jobs_jobevent_id') + %s)", [2 * MAX_MISSED_IDS])
    job = make_job(batch=batch)
    cursor = get(client, f"/api/v1/batches/{batch.pk}/", key)["cursor"]
    move_along("dispatch", [job.pk])
    watcher = client.watch(f"batches/{batch.pk}", key=key)
    watcher.first("snapshot")
    watcher.resume(cursor)
    watcher.wait_for_events(ids_of(to_status=JobState.DISPATCHED))


def test_a_gap_that_is_too_old_becomes_a_fresh_snapshot(client: LiveClient, key: str):
    batch = make_batch()
    job, *_ = make_jobs(401, batch=batch)
    first = client.watch(f"jobs/{job.pk}", key=key)
    first.first("snapshot")
    with writer() as one:
        last = log_event(one, job)
    first.wait_for_events({last})  # what came before it is handed over, too
    watcher = client.watch(f"batches/{batch.pk}", key=key)
    watcher.first("snapshot")
    watcher.resume(0)
    wait_for(lambda: len(watcher.of_type("snapshot")) == 2, what="a second snapshot")
    assert not watcher.events


def test_producers_follow_their_project_and_operators_everything(client: LiveClient, key: str):
    operator = session_of("operator")
    mine = client.watch("me", key=key)
    ops = client.watch("ops", session=operator)
    narrowed = client.watch("me?project=other", session=operator)
    narrowed.closed()  # there is no such project yet
    mine.first("snapshot")
    job = make_job(project="other")
    assert ops.first("snapshot")["data"]["health"]
    narrowed = client.watch("me?project=other", session=operator)
    narrowed.first("snapshot")
    own = make_job()
    move_along("dispatch", [job.pk])
    move_along("dispatch", [own.pk])
    ops.wait_for_events(ids_of(to_status=JobState.DISPATCHED))
    mine.wait_for_events(ids_of(to_status=JobState.DISPATCHED, project_id="acme"))
    narrowed.wait_for_events(ids_of(to_status=JobState.DISPATCHED, project_id="other"))
    assert {event["project"] for event in mine.events} == {"acme"}
    assert {event["project"] for event in narrowed.events} == {"other"}


def test_the_operators_feed_is_filtered_as_asked(client: LiveClient):
    ops = client.watch("ops", session=session_of("operator"))
    ops.first("snapshot")
    ops.send({"filter": {"project": "acme", "state": "dispatched"}})
    ops.resume(ops.cursor + 1_000_000)  # of another database: answered by a snapshot, after the filter
    wait_for(lambda: len(ops.of_type("snapshot")) == 2, what="the answer")
    jobs = [make_job(project=project) for project in ("other", "acme")]
    for job in jobs:
        move_along("dispatch", [job.pk])
    ops.wait_for_events(ids_of(to_status=JobState.DISPATCHED, project_id="acme"))
    assert {(event["project"], event["to"]) for event in ops.events} == {("acme", "dispatched")}


@pytest.mark.parametrize(
    "said",
    ["no json", "[]", '{"ack": -1}', '{"ack": "1"}', '{"ack": 99999999999}', '{"filter": {}}', '{"resume": 1.5}'],
)
def test_what_is_not_of_the_protocol_closes_the_socket(said: str, client: LiveClient, key: str):
    watcher = client.watch(f"jobs/{make_job().pk}", key=key)
    watcher.first("snapshot")
    watcher.send(said)
    assert watcher.closed() == 4400
    assert watcher.of_type("error")[0]["code"] == "bad_message"


def test_a_message_beyond_the_bound_ends_the_connection(client: LiveClient, key: str):
    watcher = client.watch(f"jobs/{make_job().pk}", key=key)
    watcher.first("snapshot")
    watcher.send('{"pong": "' + "x" * 100_000 + '"}')
    assert watcher.closed() in {1006, 1009}


def test_addresses_where_nothing_is_become_no_socket(client: LiveClient):
    assert client.watch("jobs/not-an-id").status == 403
    assert client.watch("nothing").status == 403


def test_the_documentation_names_every_close_code():
    page = (ROOT / "docs/reference/live-protocol.md").read_text()
    documented = set(re.findall(r"^\| (4\d\d\d) \| `(\w+)` \|", page, re.MULTILINE))
    assert documented == {(str(int(refusal)), refusal.code) for refusal in CloseCode}
    for bound in (
        MESSAGE_WINDOW,
        MAX_MISSED,
        MAX_MISSED_IDS,
        MAX_CLIENT_BYTES,
        MAX_SOCKETS,
        MAX_OF_ONE,
        MAX_STRANGERS,
        MAX_OF_ADDRESS,
        MAX_DATA_BYTES,
    ):
        assert f"{bound:,}" in page
