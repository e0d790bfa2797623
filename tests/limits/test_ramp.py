"""Resuming with a ramp, for real executors, judged by the moments of their decisions and the provider's ledger."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pytest

from jobs.models import Job, JobEvent, PauseSwitch
from jobs.services.operate.pauses import pause_scope, resume_everything
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.core.clock import database_now
from ratelimits.algorithms.modifiers.ramp import Ramp
from ratelimits.limits.catalogue import RAMP_ID
from ratelimits.models import Counter, ResumeRamp
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox
from tests.support.saturation import SUBMITTER, Account, Quota, flood, open_accounts, received, set_limits, set_quota

pytestmark = pytest.mark.usefixtures("transactional_db")

ACCOUNT = Account("p0", "u0")
EXECUTORS, SLOTS = 2, 24
LATENCY = 2.0  # long beside what an executor takes between two jobs: it leaves a slot empty meanwhile
ACTOR = "user:1"
UNLIMITED = "http:127.0.0.1"
GROWN = 0.85  # of all that is allowed; what is left is how a window counts and how long an executor takes besides
WINDOWS_AFTER = 8  # the ramp: a busy machine fills the slots in one of them


@dataclass(frozen=True, slots=True)
class Trial:
    """A limit of so many calls in a window, and a ramp."""

    capacity: int
    window_seconds: float
    over_seconds: float


@pytest.mark.proves("P5")
@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(Trial(40, 2, 6), id="short"),
        pytest.param(Trial(300, 60, 300), id="long", marks=pytest.mark.soak),
    ],
)
def test_after_a_resume_with_a_ramp_calls_never_pass_the_share_of_the_limit_or_of_the_slots_and_grow_to_all_of_it(
    ledger: Ledger, sandbox: Sandbox, figures: Any, trial: Trial
):
    quota = Quota("sliding", trial.window_seconds, per_project=trial.capacity, per_user=trial.capacity)
    sandbox.turn(latency={"mode": "fixed", "milliseconds": LATENCY * 1000}, faulty_providers=["plain"])
    set_quota(sandbox, quota)
    set_limits(quota, algorithm="sliding_window")
    open_accounts([ACCOUNT], url=sandbox.url)
    pause_scope(PauseSwitch.Scope.GLOBAL, "", actor=ACTOR)
    lasts = trial.over_seconds / 2 + WINDOWS_AFTER * trial.window_seconds
    flood([ACCOUNT], int(trial.capacity / trial.window_seconds * lasts))
    urls = [sandbox.row_url("s", str(n)) for n in range(int(EXECUTORS * SLOTS / LATENCY * lasts))]
    lines = [{"kind": "http.request", "payload": {"method": "PUT", "url": url, "json": 1}} for url in urls]
    submit_batch(lines, project_id=ACCOUNT.project, actor=SUBMITTER)
    with cluster(ledger, executors=EXECUTORS, executor_slots=SLOTS):
        assert received(sandbox) == 0
        resume_everything(over_seconds=trial.over_seconds, actor=ACTOR)
        ramp = ResumeRamp.objects.get().figures
        assert ramp.slots == EXECUTORS * SLOTS
        wait_for(all_ended, seconds=4 * trial.over_seconds + 60, what="the end of every job")
        assert database_now() > (ramp.ends_at or math.inf)
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}
    assert Counter.objects.filter(limit_id=RAMP_ID, key=f"service:{UNLIMITED}").exists()
    limited = arrivals(sandbox.calls(provider="google_sheets"))
    unlimited = arrivals(sandbox.calls(provider="plain"))
    assert min(*limited, *unlimited) >= (ramp.started_at or math.inf)
    told = []
    for name, service, arrived, span, whole in (
        ("limit", "google-sheets", limited, trial.window_seconds, trial.capacity),
        ("slots", UNLIMITED, unlimited, LATENCY, ramp.slots),
    ):
        # Calls of one moment arrive up to 0.14 s apart on a busy machine, and two that bunch are one too many.
        times = decisions(service)
        assert len(times) == len(arrived)
        uses = list(used(times, span))
        most_over = max(count - max(1.0, ramp.share(at) * whole) for at, count in uses)
        # Slots are filled by jobs that are under way: how many begin within a call's time depends on the machine, too.
        fill = uses if service != UNLIMITED else under_way(service)
        fullest = max(count for at, count in fill if at > (ramp.ends_at or 0.0)) / whole
        told.append(f"{name}: at most {most_over:+.1f} above the share, {fullest:.0%} at the end")
        assert most_over <= 1, f"{name}: {told}"
        assert fullest >= GROWN, f"{name}: {told}"
    figures("; ".join(told))


def arrivals(calls: Iterable[dict[str, Any]]) -> list[float]:
    return sorted(call["at"] for call in calls)


def decisions(service: str) -> list[float]:
    """When each job of a service was let go, in seconds since 1970: the start of the transaction that claimed it."""
    begun = JobEvent.objects.filter(service=service, to_status=JobState.IN_PROGRESS)
    return sorted(at.timestamp() for at in begun.values_list("created_at", flat=True))


def under_way(service: str) -> Iterable[tuple[float, int]]:
    """How many jobs of a service are under way after each of their begins and ends, by the log."""
    moves = JobEvent.objects.filter(service=service, event_type="state_change")
    begun = moves.filter(to_status=JobState.IN_PROGRESS).values_list("created_at", flat=True)
    ended = moves.filter(from_status=JobState.IN_PROGRESS).values_list("created_at", flat=True)
    steps = sorted([*((at.timestamp(), 1) for at in begun), *((at.timestamp(), -1) for at in ended)])
    return zip([at for at, _ in steps], accumulate(step for _, step in steps), strict=True)


def used(times: Sequence[float], span: float) -> Iterable[tuple[float, int]]:
    """At each call, how many have come in the span that it ends."""
    return ((at, index + 1 - bisect_right(times, at - span)) for index, at in enumerate(times))


def all_ended() -> bool:
    return not Job.objects.filter(finished_at=None).exists()


def test_the_judge_sees_a_call_above_the_share():
    ramp = Ramp(0.0, 10.0)
    assert max(count - 10 * ramp.share(at) for at, count in used([5.0 + n / 100 for n in range(8)], 1)) > 1
