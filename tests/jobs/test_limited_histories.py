"""Jobs behind a limit: their log folds to their row whatever happens, and executors hear of changed limits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from itertools import groupby
from operator import attrgetter

import pytest

from jobs.features.recovery.event_fold import FoldedJob, fold
from jobs.models import Job, JobEvent
from jobs.services.claim import lanes
from jobs.services.claim.claim import promote_due
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.park import Parking
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import GivenBack, Outcome, Succeeded
from jobs.services.operate import job_actions
from jobs.services.upkeep import upkeep
from jobs.states import RUNNING, WAITING, JobState, Priority
from queueops.core.notify import Channel, notify
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit
from tests.jobs import merging
from tests.jobs.merging import ALONE, KIND, claim, submit
from tests.support.executing import executing
from tests.support.processes import wait_for

STEPS = 60


@pytest.fixture(autouse=True)
def limit(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit]:
    merging.declare(monkeypatch)
    Limit.objects.all().delete()
    made = Limit.objects.create(name="limit", service="svc", capacity=2, window_seconds=3600)
    catalogue.forget()
    yield made
    catalogue.forget()


class History:
    """Random steps in the life of jobs behind a limit."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 (no secret)
        self.claims: list[ClaimedJob] = []
        self.parking = Parking()
        self.seen: set[str] = set()

    def step(self) -> None:
        steps: list[Callable[[], object]] = [
            self.submit, self.submit, self.claim, self.park, self.resize, self.finish, self.cancel, self.hurry,
            self.schedule, promote_due, upkeep.expire_waiting,
        ]  # fmt: skip
        self.dice.choice(steps)()
        self.seen |= set(Job.objects.values_list("status", flat=True))

    def some(self, states: frozenset[JobState]) -> list[Job]:
        found = list(Job.objects.filter(status__in=states).order_by("pk"))
        return [self.dice.choice(found)] if found else []

    def submit(self) -> None:
        submit(
            kind=self.dice.choice([KIND, ALONE]), sheet=self.dice.choice("ab"), spec={"cost": self.dice.choice([1, 99])}
        )

    def claim(self) -> None:
        self.claims += claim(self.dice.randint(1, 4))

    def park(self) -> None:
        gate = LaneGate()
        gate.look(wanted=1)
        self.parking.park(gate.waiting)

    def resize(self) -> None:
        Limit.objects.update(
            capacity=self.dice.choice([1, 50, 200]), unit=self.dice.choice(["requests", "tokens"]), shadow=False
        )
        if self.dice.random() < 0.3:
            Counter.objects.update(state={})
        catalogue.forget()

    def finish(self) -> None:
        if self.claims:
            job = self.claims.pop(self.dice.randrange(len(self.claims)))
            outcomes: list[Outcome] = [Succeeded(job, "svc", "1", 1.0), GivenBack(job, "again", partial="[1]")]
            record_outcomes([self.dice.choice(outcomes)], policies=retry_policies())

    def cancel(self) -> None:
        job_actions.cancel_jobs([job.pk for job in self.some(WAITING | RUNNING)], actor="user:1", reason="x")

    def hurry(self) -> None:
        job_actions.change_priority([job.pk for job in self.some(WAITING)], priority=Priority.URGENT, actor="user:1")

    def schedule(self) -> None:
        delay = timedelta(seconds=self.dice.choice([0, 3600]))
        job_actions.schedule_jobs([job.pk for job in self.some(WAITING)], delay=delay, actor="user:1")


def folded() -> dict[object, FoldedJob]:
    events = JobEvent.objects.filter(job_id__in=Job.objects.values("pk")).order_by("job_id", "id")
    return {job_id: fold(lines) for job_id, lines in groupby(events, key=attrgetter("job_id"))}


def rows() -> dict[object, FoldedJob]:
    columns = attrgetter(*[column.name for column in fields(FoldedJob)])
    return {job.pk: FoldedJob(*columns(job)) for job in Job.objects.all()}


def test_after_every_step_behind_a_limit_the_log_folds_to_the_rows(monkeypatch):
    monkeypatch.setattr(lanes, "READING_SHARE", 1e9)
    seen: set[str] = set()
    for seed in range(4):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
            assert folded() == rows()
        seen |= history.seen
    assert seen == {state.value for state in JobState} - {"dispatched"}


@pytest.mark.django_db(transaction=True)
def test_an_executor_hears_of_a_raised_cap_and_lets_what_waited_go(monkeypatch):
    monkeypatch.setattr(catalogue, "LIMITS_KEPT_SECONDS", 1e9)  # without the word it would never read the limits again
    jobs = [submit(kind=ALONE) for _ in range(5)]

    def done() -> int:
        return Job.objects.filter(status=JobState.COMPLETED).count()

    def parked() -> int:
        return Job.objects.filter(status=JobState.RATE_LIMITED).count()

    with executing():
        wait_for(lambda: done() == 2, what="the calls that the limit admits")
        wait_for(lambda: parked() == 3, what="the others to be parked")
        Limit.objects.update(capacity=4)  # as another process does: this one's catalogue is not told
        notify(Channel.LIMITS)
        wait_for(lambda: done() == 4, what="what the raised cap admits")
        Limit.objects.all().delete()
        notify(Channel.LIMITS)
        wait_for(lambda: done() == 5, what="what was held back by the deleted limit")
    assert not Job.objects.filter(pk__in=[job.pk for job in jobs], retry_count__gt=0).exists()
    assert folded() == rows()
