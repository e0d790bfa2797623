"""A part of a bulk operation goes first and decides whether the rest follows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from pydantic import BaseModel

from jobs.errors import InvalidPace
from jobs.features.batch_guards import guards
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Batch, BulkOperation, DeadLetter, Job
from jobs.services.operate import bulk
from jobs.services.operate.bulk_outcome import Canary
from jobs.services.operate.bulk_run import cancel_bulk, go_on, run_bulk_chunk, seconds_until_due
from jobs.services.operate.pauses import pause_batch, resume_batch_by_canary
from jobs.states import JobState, Priority
from jobs.testing import drain
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_dead_letters, make_jobs
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db
HEALED = {"sheet": False}


class Sheet(BaseModel):
    nr: int = 0


@handler(kind="test.canary", service="canary", payload=Sheet, idempotent=True)
def canary(job: RunningJob[Sheet]) -> Done:
    if not HEALED["sheet"]:
        raise ProviderError(404, "There is no such sheet.", code="no_such_sheet", outcome="answered")
    return Done({})


@pytest.fixture(autouse=True)
def broken() -> None:
    HEALED["sheet"] = False


def letters(count: int, **fields: Any) -> list[DeadLetter]:
    return make_dead_letters(count, kind="test.canary", service="canary", payload="{}", **fields)


def carry_on(operation: BulkOperation, *, most: int = 50) -> BulkOperation:
    """Chunk after chunk until it ends or waits."""
    for _ in range(most):
        if not run_bulk_chunk(operation.pk) or seconds_until_due(operation.pk) > 1:
            break
    operation.refresh_from_db()
    return operation


def test_a_canary_that_fails_leaves_the_rest_as_it_was_and_a_person_may_still_go_on():
    letters(60)
    operation = bulk.start_bulk_requeue({}, actor="user:1", canary=Canary(20))
    assert (carry_on(operation).done, operation.status) == (20, "running")
    assert carry_on(operation).done == 20  # while its jobs have not ended nothing follows
    drain()
    assert (carry_on(operation).status, operation.done) == ("failed", 20)
    assert "20 of the 20 jobs that went first failed with no_such_sheet" in operation.error
    assert DeadLetter.objects.open().filter(error_code="not_found").count() == 40
    api = Api(key_for("acme"))
    BulkOperation.objects.filter(pk=operation.pk).update(parameters={**operation.parameters, "project_id": "acme"})
    told = api.get(f"/operations/{operation.pk}/").json()["canary"]
    assert told == {
        "state": "failed", "rows": 20, "percent": 20, "jobs": 20, "ended": 20, "failed": 20, "code": "no_such_sheet",
    }  # fmt: skip
    page = signed_in("operator").get(reverse("admin:jobs_bulkoperation_change", args=[operation.pk])).content.decode()
    assert "20 failed with no_such_sheet; the rest was left alone" in page
    rest = go_on(operation.pk, actor="user:1")
    assert rest is not None
    assert (carry_on(rest).status, rest.done, rest.canary) == ("done", 40, None)


def test_what_was_stopped_before_its_canary_was_judged_goes_on_with_a_canary():
    letters(60)
    operation = bulk.start_bulk_requeue({}, actor="user:1", canary=Canary(20, 30))
    carry_on(operation)
    cancel_bulk(operation.pk, actor="user:1")
    rest = go_on(operation.pk, actor="user:1")
    assert rest is not None
    assert (carry_on(rest).done, rest.canary_state, rest.canary_percent) == (20, "trying", 30)


def test_a_canary_that_ends_well_decides_for_the_rest():
    HEALED["sheet"] = True
    letters(60)
    operation = bulk.start_bulk_requeue({}, actor="user:1", canary=Canary(20))
    carry_on(operation)
    drain()
    assert (carry_on(operation).status, operation.done, operation.canary_state) == ("done", 60, "passed")


def test_run_now_and_another_priority_have_canaries_too():
    make_jobs(30, kind="test.canary", service="canary", payload="{}", delay_seconds=3600)
    for start in (
        lambda: bulk.start_bulk_priority({}, priority=Priority.URGENT, actor="user:1", canary=Canary(5, 50)),
        lambda: bulk.start_bulk_schedule({}, delay=timedelta(), actor="user:1", canary=Canary(5)),
    ):
        operation = carry_on(start())
        assert (operation.done, operation.canary_state, len(operation.canary_rows)) == (5, "trying", 5)
    drain(seconds=1)
    states = Counter(Job.objects.values_list("status", flat=True))
    assert states == {"failed": 5, "queued": 25}
    assert (carry_on(operation).status, Job.objects.filter(status="queued", scheduled_at=None).count()) == ("failed", 0)


def test_a_batch_is_resumed_by_a_canary_which_its_guard_judges():
    batch = make_batch()
    make_jobs(2, batch=batch, state=JobState.FAILED, kind="test.canary", service="canary", payload="{}")
    Job.objects.filter(batch=batch).update(finished_at=timezone.now() - timedelta(hours=1))
    make_jobs(40, batch=batch, kind="test.canary", service="canary", payload="{}")
    Batch.objects.filter(pk=batch.pk).update(total=42)

    def standing() -> tuple[str, bool, int]:
        guards.tend_guards()
        batch.refresh_from_db()
        return batch.guard_state, batch.paused, Job.objects.filter(batch=batch, held=False, status="queued").count()

    pause_batch(batch.pk, actor="user:1", reason="a look")
    resume_batch_by_canary(batch.pk, canary=Canary(5), actor="user:1")
    assert standing() == ("trial", False, 5)
    drain()
    assert standing() == ("stopped", True, 0)
    assert Job.objects.filter(batch=batch, status="queued").count() == 35
    HEALED["sheet"] = True
    Job.objects.filter(batch=batch, status="failed").update(finished_at=timezone.now() - timedelta(hours=1))
    api = Api(key_for("acme"))
    assert api.post(f"/batches/{batch.pk}/resume/", {"canary": 5}).status_code == 200
    assert standing() == ("trial", False, 5)
    drain()
    assert standing()[:2] == ("passed", False)
    assert Job.objects.filter(batch=batch, status="completed").count() == 35


def test_a_batch_that_runs_is_not_held_back_by_a_resume_with_a_canary():
    batch = make_batch()
    make_jobs(40, batch=batch)
    assert resume_batch_by_canary(batch.pk, canary=Canary(5), actor="user:1") == 0
    guards.tend_guards()
    batch.refresh_from_db()
    assert (batch.guard_state, Job.objects.filter(batch=batch, held=False).count()) == ("", 40)


def test_a_canary_of_no_size_is_refused_where_it_is_asked_for():
    with pytest.raises(InvalidPace):
        bulk.start_bulk_requeue({}, actor="user:1", canary=Canary(0))
    with pytest.raises(InvalidPace):
        bulk.start_bulk_requeue({}, actor="user:1", canary=Canary(5, 101))
    [letter] = letters(1)
    api = Api(key_for("acme"))
    error_of(api.post("/dead-letters/requeue/", {"filter": {}, "canary": 1001}), 422)
    alone = error_of(api.post("/dead-letters/requeue/", {"filter": {}, "canary_percent": 5}), 422)
    assert "canary_percent goes with canary" in str(alone)
    error_of(api.post("/dead-letters/requeue/", {"ids": [str(letter.pk)], "canary": 5}), 422)
    begun = api.post("/dead-letters/requeue/", {"filter": {}, "canary": 5})
    assert BulkOperation.objects.get(pk=begun.json()["id"]).canary == 5
    operator = signed_in("operator")
    address = reverse("admin:jobs_deadletter_all_requeue")
    operator.post(address, {"confirmed": "yes", "canary": "7", "canary_percent": "30", "spread_seconds": "0"})
    newest = BulkOperation.objects.order_by("-pk")[0]
    assert (newest.canary, newest.canary_percent) == (7, 30)
