"""One word for what a batch is, the same on every surface, and found by it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dashboards.services.batches import batch_rows
from jobs.handlers.webhook import compose
from jobs.models import Batch, Dependency, Job, JobCount, PauseSwitch, ServiceBreaker, WebhookDelivery
from jobs.services.explain.batch_report import read_report
from jobs.services.explain.snapshots import batch_snapshots
from jobs.services.explain.verdicts import verdicts_of
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.services.upkeep.batches import finish_batches
from jobs.states import SHOWN_VERDICTS, JobState, ended_verdict, verdict_of_ended
from jobs.states import BatchVerdict as V
from tests.api.conftest import Api, key_for
from tests.factories import make_batch, make_jobs, make_project, make_webhook, move_along
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db
LIST = reverse("admin:jobs_batch_changelist")


def told(batch: Batch) -> tuple[V, str | None]:
    return tuple(verdicts_of([batch])[batch.pk])  # type: ignore[return-value]


def test_what_has_ended_is_judged_alike_by_the_database_and_in_memory():
    counted = {}
    for completed, failed, cancelled in itertools.product((0, 1, 3), repeat=3):
        batch = make_batch()
        counts = {"completed": completed, "failed": failed, "cancelled": cancelled}
        # Over two shards, as the writers of a batch are several.
        for shard in (1, 2):
            JobCount.objects.create(
                project_id="acme",
                batch_id=batch.pk,
                shard=shard,
                **(counts if shard == 1 else dict.fromkeys(counts, 0)),
            )
        counted[batch.pk] = (batch, counts)
    verdicts = verdicts_of([batch for batch, _ in counted.values()])
    wrong = {
        tuple(counts.values()): (verdicts[pk].verdict, verdict_of_ended(counts))
        for pk, (_, counts) in counted.items()
        if verdicts[pk] != (verdict_of_ended(counts), None)
    }
    assert not wrong
    assert ended_verdict({"completed": 3, "failed": 1}) == V.SUCCEEDED_WITH_FAILURES
    assert [ended_verdict(None), ended_verdict({}), ended_verdict({"completed": 3, "queued": 1})] == [None] * 3
    assert told(make_batch()) == (V.SUCCEEDED, None)  # every line of it was known before


def test_what_stops_a_batch_is_its_verdict_and_said_and_no_longer_once_it_is_over():
    batch = make_batch()
    make_jobs(3, batch=batch)
    assert told(batch) == (V.WAITING, None)
    for scope, key, words in [
        ("batch", str(batch.pk), "a pause of it: a look"),
        ("project", "acme", "a pause of project acme: a look"),
        ("global", "", "a pause of everything: a look"),
        ("kind", "http.request", "kind http.request is paused: a look"),
    ]:
        pause_scope(scope, key, actor="user:1", reason="a look")
        batch.refresh_from_db()
        assert told(batch) == (V.HELD, words), scope
        resume_scope(scope, key, actor="user:1")
        batch.refresh_from_db()
        assert told(batch) == (V.WAITING, None), scope
    make_jobs(1, batch=batch, state=JobState.COMPLETED)
    assert told(batch) == (V.RUNNING, None)
    # An outage holds it once it holds all that waits, and not while something of it runs.
    job = Job.objects.filter(batch=batch).first()
    assert job is not None
    Job.objects.filter(batch=batch, status="queued").update(status="rate_limited")
    JobCount.objects.filter(batch_id=batch.pk).update(rate_limited=3, queued=0)
    assert told(batch) == (V.RUNNING, None)
    ServiceBreaker.objects.create(service=job.service, project_id="acme", opened_at=timezone.now())
    verdict, reason = told(batch)
    assert (verdict, "does not answer" in str(reason)) == (V.HELD, True)
    make_jobs(1, batch=batch, state=JobState.IN_PROGRESS)
    assert told(batch) == (V.RUNNING, None)


def test_the_platforms_own_batches_go_on_while_everything_is_paused():
    batch = make_batch(project=PauseSwitch.EXEMPT)
    make_jobs(1, batch=batch, project=PauseSwitch.EXEMPT)
    pause_scope("global", "", actor="user:1", reason="a look")
    assert told(batch) == (V.WAITING, None)


def of_each_verdict() -> dict[V, Batch]:
    made = {verdict: make_batch(name=verdict.value) for verdict in V}
    for verdict, states in {
        V.WAITING: [JobState.QUEUED],
        V.HELD: [JobState.QUEUED],
        V.RUNNING: [JobState.IN_PROGRESS, JobState.QUEUED],
        V.SUCCEEDED: [JobState.COMPLETED],
        V.SUCCEEDED_WITH_FAILURES: [JobState.COMPLETED, JobState.FAILED],
        V.FAILED: [JobState.FAILED],
        V.CANCELLED: [JobState.CANCELLED],
    }.items():
        for state in states:
            make_jobs(1, batch=made[verdict], state=state)
    pause_scope("batch", str(made[V.HELD].pk), actor="user:1", reason="a look")
    finish_batches()
    return {verdict: Batch.objects.get(pk=batch.pk) for verdict, batch in made.items()}


def test_three_hundred_of_three_hundred_failed_is_never_green_and_every_surface_says_so():
    make_webhook(make_project("acme"))
    made = of_each_verdict()
    failed = made[V.FAILED]
    message = compose(WebhookDelivery.objects.get(batch=failed).pk)
    assert message is not None
    page = signed_in("operator").get(reverse("admin:jobs_batch_change", args=[failed.pk])).content.decode()
    api = Api(key_for("acme"))
    cards = {card["id"]: card for card in batch_rows()}
    said = {
        "api": api.get(f"/batches/{failed.pk}/").json()["verdict"],
        "webhook": json.loads(message.body)["data"]["verdict"],
        "card": cards[str(failed.pk)]["verdict"],
        "terminal": read_report(failed, now=timezone.now()).verdict,
    }
    assert set(said.values()) == {V.FAILED}, said
    assert (cards[str(failed.pk)]["tone"], SHOWN_VERDICTS[V.FAILED].tone) == ("red", "red")
    assert 'qo-tone-red"><span class="material-symbols-outlined" aria-hidden="true">close</span>failed' in page
    held = api.get(f"/batches/{made[V.HELD].pk}/").json()
    assert (held["verdict"], held["held_by"]) == ("held", "a pause of it: a look")


def test_lists_are_narrowed_to_a_verdict_in_the_api_and_in_the_admin():
    made = of_each_verdict()
    api, operator = Api(key_for("acme")), signed_in("operator")

    def narrowed(verdicts: str) -> set[str]:
        answer = api.get(f"/batches/?verdict={verdicts}")
        assert answer.status_code == 200, answer.content
        return {row["name"] for row in answer.json()["results"]}

    for verdict, batch in made.items():
        assert narrowed(verdict) == {verdict.value}
        rows = operator.get(LIST, {"state": verdict.value}).context["cl"].result_list
        assert [row.pk for row in rows] == [batch.pk], verdict
    assert narrowed("failed,held") == {"failed", "held"}
    assert api.get("/batches/?verdict=ended").status_code == 400
    assert operator.get(LIST, {"state": "lost"}).status_code == 302
    # Filters that were saved before there was a verdict.
    for saved, count in (("paused", 1), ("open", 3), ("ended", 4)):
        assert len(operator.get(LIST, {"state": saved}).context["cl"].result_list) == count, saved


def test_verdicts_of_a_page_take_a_few_reads_however_many_batches_it_has():
    def reads() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert len(batch_snapshots(Batch.objects.all())) == Batch.objects.count()
        return len(queries)

    def add(count: int, make: Callable[[], Any] = make_batch) -> None:
        for _ in range(count):
            make_jobs(1, batch=make())

    add(1)
    few = reads()
    add(20)
    assert reads() == few


def test_what_holds_many_batches_for_one_reason_is_looked_for_once():
    def reads() -> int:
        batches = list(Batch.objects.all())
        with CaptureQueriesContext(connection) as queries:
            verdicts = verdicts_of(batches)
        assert {one.verdict for one in verdicts.values()} == {V.HELD}
        return len(queries)

    def add(count: int) -> None:
        for _ in range(count):
            make_jobs(1, batch=make_batch())

    pause_scope("kind", "http.request", actor="user:1", reason="a look")
    add(1)
    Job.objects.update(held=True)
    few = reads()
    add(20)
    Job.objects.update(held=True)
    assert reads() == few
    # What holds one alone is told of that one.
    alone, other = Batch.objects.order_by("pk")[:2]
    before = make_jobs(1)[0]
    Dependency.objects.create(
        owner_id=alone.pk, on_id=before.pk, of_batch=True, on_batch=False, on_failure="hold", project_id="acme"
    )
    verdicts = verdicts_of([alone, other])
    assert verdicts[alone.pk].held_by == f"job {before.pk} has to end first"
    assert verdicts[other.pk].held_by == "kind http.request is paused: a look"


def test_a_batch_whose_only_job_is_to_be_tried_again_is_running():
    batch = make_batch()
    [job] = make_jobs(1, batch=batch)
    assert verdicts_of([batch])[batch.pk].verdict == V.WAITING
    for edge in ("dispatch", "start", "retry"):
        move_along(edge, [job.pk])
    assert verdicts_of([batch])[batch.pk].verdict == V.RUNNING
