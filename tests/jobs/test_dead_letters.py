"""Requeueing and discarding dead letters."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from uuid import UUID, uuid4

import pytest
from django.db import connections
from django.db.models.functions import Now

from jobs.errors import InvalidDelay
from jobs.handlers.registry import find_handler
from jobs.models import Batch, DeadLetter, Job, JobEvent
from jobs.services.explain.snapshots import batch_counts, project_counts
from jobs.services.operate import bulk, dead_letters
from jobs.services.submit.spec import InvalidJob
from jobs.states import JobState, Priority
from jobs.transitions import Move, move_jobs
from queueops.audit.models import AuditEntry
from queueops.core.values.reasons import ReasonRequired
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import CredentialNotAllowed, seal
from tests.factories import PAYLOAD, make_batch, make_dead_letter, make_dead_letters, make_jobs, make_project
from tests.support.cases import every_case

ACTOR = "user:7"
READ = {"credential": "ours", "spreadsheet_id": "sheet", "range": "A1"}


def some(counts: dict[str, int]) -> dict[str, int]:
    return {state: count for state, count in counts.items() if count}


def starts(moved: Mapping[UUID, UUID]) -> list[float]:
    """Seconds from the first new job's start to each one's, in the order of the dead letters' ids."""
    times = [Job.objects.get(pk=moved[letter]).eligible_since for letter in sorted(moved)]
    return [(time - times[0]).total_seconds() for time in times]


@pytest.mark.django_db
def test_a_requeue_makes_a_new_job_with_the_old_effect_key_and_a_fresh_budget():
    letter = make_dead_letter(
        idempotency_key="line-1", user_id=uuid4(), cost=9, priority=Priority.LOW, retry_policy="aggressive",
        retry_count=5, crash_count=2, expires_at="2030-01-01T00:00:00Z",
    )  # fmt: skip
    result = dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR, note="fixed")
    old, new = letter.job, Job.objects.get(pk=result.moved[letter.pk])
    same = (
        "project_id",
        "user_id",
        "kind",
        "service",
        "call_type",
        "cost",
        "priority",
        "payload",
        "effect_key",
    )
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert (new.origin_id, new.retry_policy_id, new.status) == (old.pk, "aggressive", JobState.QUEUED)
    assert (new.idempotency_key, new.expires_at, new.scheduled_at) == (None, None, None)
    assert (new.retry_count, new.crash_count, new.deferral_count) == (0, 0, 0)
    old.refresh_from_db()
    assert (old.status, old.idempotency_key) == (JobState.FAILED, "line-1")


@pytest.mark.django_db
def test_a_requeued_dead_letter_names_its_new_job_and_who_requeued_it():
    letter = make_dead_letter()
    result = dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR, note="fixed")
    letter.refresh_from_db()
    assert (letter.resolution, letter.resolved_by, letter.note) == ("requeued", ACTOR, "fixed")
    assert letter.requeued_as_id == result.moved[letter.pk]
    assert letter.resolved_at is not None
    event = JobEvent.objects.filter(job_id=letter.job_id).latest("id")
    assert (event.event_type, event.message) == ("audit", "fixed")
    assert event.data == {
        "dead_letter": str(letter.pk),
        "resolution": "requeued",
        "requeued_as": str(letter.requeued_as_id),
        "actor": ACTOR,
    }
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target, entry.moved) == (
        "requeue_dead_letters",
        f"dead letter {letter.pk}",
        1,
    )
    assert (entry.reason, entry.project_id) == ("fixed", "acme")


@pytest.mark.django_db
def test_a_dead_letter_is_requeued_only_once():
    letter = make_dead_letter()
    dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR)
    again = dead_letters.requeue_dead_letters([letter.pk, uuid4()], actor=ACTOR)
    assert again.moved == {}
    assert again.unmoved[0] == letter.pk
    assert len(again.unmoved) == 2
    assert Job.objects.filter(origin=letter.job_id).count() == 1


@pytest.mark.django_db(transaction=True)
def test_four_operators_who_requeue_the_same_dead_letters_make_one_job_of_each():
    letters = make_dead_letters(40)
    ids = [letter.pk for letter in letters]
    start = threading.Barrier(4)
    moved: list[dict[UUID, UUID]] = []

    def requeue(order: list[UUID]) -> None:
        start.wait(timeout=10)
        moved.append(dict(dead_letters.requeue_dead_letters(order, actor=ACTOR).moved))
        connections.close_all()

    threads = [threading.Thread(target=requeue, args=(ids[:: (-1) ** turn],)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(letter for one in moved for letter in one) == ids
    assert Job.objects.filter(origin__in=[letter.job_id for letter in letters]).count() == 40
    assert some(project_counts("acme")) == {"queued": 40}


@pytest.mark.django_db
def test_an_edited_payload_and_priority_replace_the_old_ones():
    letter = make_dead_letter(cost=9)
    payload = {"method": "GET", "url": "http://127.0.0.1:9/edited"}
    result = dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR, payload=payload, priority=Priority.URGENT)
    new = Job.objects.get(pk=result.moved[letter.pk])
    assert (new.payload, new.priority, new.cost) == (payload, "urgent", 1)
    assert new.effect_key == letter.job.effect_key


@pytest.mark.django_db
def test_an_edited_payload_that_the_handler_refuses_requeues_nothing():
    letters = make_dead_letters(2)
    with pytest.raises(InvalidJob) as caught:
        dead_letters.requeue_dead_letters([letter.pk for letter in letters], actor=ACTOR, payload={"method": "GET"})
    assert list(caught.value.fields) == ["payload.url"]
    assert DeadLetter.objects.open().count() == 2
    assert not Job.objects.filter(origin__isnull=False).exists()


@pytest.mark.django_db
def test_an_edited_payload_may_name_only_credentials_of_the_dead_letters_project():
    theirs = Credential.objects.create(name="theirs", service="google-sheets", secret=seal({"access_token": "t"}))
    theirs.projects.add(make_project("globex"))
    letter = make_dead_letter(kind="google_sheets.values_get", service="google-sheets", payload=json.dumps(READ))
    edited = {**READ, "credential": "theirs"}
    for requeue in (
        lambda: dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR, payload=edited),
        lambda: bulk.start_bulk_requeue({}, actor=ACTOR, payload=edited),
    ):
        with pytest.raises(CredentialNotAllowed):
            requeue()
    assert DeadLetter.objects.open().count() == 1
    theirs.projects.add(make_project("acme"))
    [new] = dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR, payload=edited).moved.values()
    assert Job.objects.get(pk=new).credential == "theirs"


@pytest.mark.django_db
def test_a_kind_that_no_handler_carries_out_is_left_alone():
    lost, known = make_dead_letter(kind="nobody.knows"), make_dead_letter()
    result = dead_letters.requeue_dead_letters([lost.pk, known.pk], actor=ACTOR)
    assert (list(result.moved), result.unmoved) == ([known.pk], [lost.pk])
    lost.refresh_from_db()
    assert lost.resolution is None


@pytest.mark.django_db
def test_a_spread_requeue_starts_the_jobs_one_after_the_other():
    letters = make_dead_letters(4)
    result = dead_letters.requeue_dead_letters([letter.pk for letter in letters], actor=ACTOR, spread_seconds=120)
    jobs = [Job.objects.get(pk=result.moved[letter.pk]) for letter in letters]
    assert jobs[0].scheduled_at is None
    assert all(job.scheduled_at == job.eligible_since for job in jobs[1:])
    assert starts(result.moved) == [0, 30, 60, 90]


@pytest.mark.django_db
@every_case("spread", [-1, float("inf"), float("nan"), 1e12], undone=True)
def test_a_spread_out_of_range_is_refused(spread):
    letter = make_dead_letter()
    with pytest.raises(InvalidDelay):
        dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR, spread_seconds=spread)


@pytest.mark.django_db
def test_more_dead_letters_than_one_slice_are_requeued_in_one_call(monkeypatch):
    monkeypatch.setattr(dead_letters, "SLICE", 3)
    letters = make_dead_letters(8)
    result = dead_letters.requeue_dead_letters(
        [letter.pk for letter in reversed(letters)], actor=ACTOR, spread_seconds=80
    )
    assert list(result.moved) == [letter.pk for letter in letters]
    assert starts(result.moved) == [0, 10, 20, 30, 40, 50, 60, 70]


@pytest.mark.django_db
def test_a_batch_counts_a_requeued_item_once_as_its_latest_job():
    batch = make_batch(total=5)
    make_jobs(2, batch=batch, state=JobState.COMPLETED)
    letters = make_dead_letters(3, batch=batch)
    assert some(batch_counts([batch.pk])[batch.pk]) == {"completed": 2, "failed": 3}
    result = dead_letters.requeue_dead_letters([letters[0].pk, letters[1].pk], actor=ACTOR)
    expected = {"completed": 2, "failed": 1, "queued": 2}
    assert some(batch_counts([batch.pk])[batch.pk]) == expected
    assert some(project_counts("acme")) == expected
    assert {Job.objects.get(pk=new).batch_id for new in result.moved.values()} == {batch.pk}
    move_jobs("reject", [Move(new) for new in result.moved.values()])
    assert some(batch_counts([batch.pk])[batch.pk]) == {"completed": 2, "failed": 3}


@pytest.mark.django_db
def test_dead_letters_of_several_batches_and_projects_stay_where_they_belong():
    batches = [make_batch(), make_batch(project="globex"), None]
    letters = [make_dead_letter(batch=batch, project=batch.project_id if batch else "acme") for batch in batches]
    result = dead_letters.requeue_dead_letters([letter.pk for letter in letters], actor=ACTOR)
    for batch, letter in zip(batches, letters, strict=True):
        new = Job.objects.get(pk=result.moved[letter.pk])
        assert (new.project_id, new.batch) == (letter.project_id, batch)


@pytest.mark.django_db
def test_a_requeue_opens_an_ended_batch_again():
    ended, other = make_batch(), make_batch()
    letter = make_dead_letter(batch=ended)
    Batch.objects.update(finished_at=Now())
    dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR)
    ended.refresh_from_db()
    other.refresh_from_db()
    assert ended.finished_at is None
    assert other.finished_at is not None


@pytest.mark.django_db
def test_jobs_requeued_into_a_paused_batch_are_held():
    batch = make_batch(paused=True)
    letter = make_dead_letter(batch=batch)
    result = dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR)
    assert Job.objects.get(pk=result.moved[letter.pk]).held


@pytest.mark.django_db
def test_a_discarded_dead_letter_can_not_be_requeued_and_its_job_stays_failed():
    letter = make_dead_letter()
    result = dead_letters.discard_dead_letters([letter.pk], actor=ACTOR, reason="duplicate")
    assert (result.moved, result.unmoved) == ([letter.pk], [])
    letter.refresh_from_db()
    assert (letter.resolution, letter.resolved_by, letter.note) == ("discarded", ACTOR, "duplicate")
    assert letter.job.status == JobState.FAILED
    assert some(project_counts("acme")) == {"failed": 1}
    assert dead_letters.requeue_dead_letters([letter.pk], actor=ACTOR).unmoved == [letter.pk]
    assert dead_letters.discard_dead_letters([letter.pk], actor=ACTOR, reason="x").unmoved == [letter.pk]
    assert list(AuditEntry.objects.order_by("id").values_list("action", "moved")) == [
        ("discard_dead_letters", 1),
        ("requeue_dead_letters", 0),
        ("discard_dead_letters", 0),
    ]


@pytest.mark.django_db
def test_discarding_without_a_reason_is_refused():
    letter = make_dead_letter()
    with pytest.raises(ReasonRequired):
        dead_letters.discard_dead_letters([letter.pk], actor=ACTOR, reason=" ")
    assert DeadLetter.objects.open().count() == 1


def test_the_default_payload_of_these_tests_is_one_the_handler_takes():
    assert find_handler("http.request").schema.validate_python(json.loads(PAYLOAD))
