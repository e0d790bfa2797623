"""Explanations of why a waiting job does not run now, what must happen first, and when that is likely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, Sum
from django.utils import timezone

from jobs.features.budget_holds.waits import why_unknown
from jobs.features.dependencies.takes import shown_takes
from jobs.features.forecast.forecast import Forecast, forecast_start, past_windows, read_limits
from jobs.features.refused_calls import stops
from jobs.features.served_kinds.served_kinds import INVALID_PAYLOAD, KEY_MISSING
from jobs.handlers.registry import all_handlers
from jobs.lanes import pool_of_lane
from jobs.models import Batch, BudgetWait, Executor, Job, JobEvent, OnFailure, PauseSwitch, RefusedCalls, ServiceBreaker
from jobs.services.operate.pauses import SILENT_EXECUTOR_SECONDS
from jobs.states import WAITING, GuardState, JobState
from queueops.core.clock import Now, database_now, foretold
from queueops.core.sql import run_sql_as
from queueops.tenancy.credential_pools.pools import members_of
from queueops.tenancy.models import CredentialPoolMember
from queueops.tenancy.scope import for_everyone
from ratelimits.limiter.view.start_forecast import LimitForecast
from ratelimits.models import Budget
from ratelimits.money.amounts import shown
from ratelimits.money.standings import standing_of

from .position import SUSPECT_CRASHES, Position, aging_rules, find_position

Code = Literal[
    "after",
    "guard",
    "paused",
    "budget",
    "outage",
    "scheduled",
    "retry_backoff",
    "limit",
    "cooled_down",
    "turn",
    "slots",
    "pool",
    "credentials",
]

MAX_OTHERS_TOLD = 5
RECHECK_PAUSED_SECONDS = 30.0
RECHECK_TURN_SECONDS = 1.0
MAX_RECHECK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Reason:
    """
    One thing that keeps a job from running.

    Attributes:
        text: A sentence without its end, for people.
        limit, key, unit: The limit or budget, whom it counts, and its unit: `requests`, `tokens`, `in_flight`, or
            `money` in micro-units.
        needed, available, capacity: Amounts in `unit`.
        by: The person who set the job's time by hand, as in events: `user:<pk>`.
        free_at: When it ends by itself; None: nobody knows, or somebody must act.
        next_try_at: If nobody knows the end, when it is next checked whether the reason is over.
    """

    code: Code
    text: str
    free_at: datetime | None = None
    limit: str | None = None
    key: str | None = None
    unit: str | None = None
    needed: float | None = None
    available: float | None = None
    capacity: float | None = None
    by: str | None = None
    next_try_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """
    The reasons why a job waits, in the order in which they must end.

    Attributes:
        reasons: Empty when the next claim will take the job. Among limits, the limit that frees up last comes first.
        position: The job's position in its lane; None: it is in no lane.
        forecast: When limits should let the job go; None: somebody must act first, or no rate is known.
        recheck_after_seconds: When asking again is worth while: at least one second, at most five minutes.
    """

    reasons: tuple[Reason, ...]
    position: Position | None
    forecast: Forecast | None
    recheck_after_seconds: float

    @property
    def text(self) -> str | None:
        """The first reason, which the others wait for; None: nothing holds it."""
        return self.reasons[0].text if self.reasons else None

    @property
    def place(self) -> str | None:
        """The position in words: `212`, or `more than 10,000`."""
        if self.position is None:
            return None
        ahead = self.position.ahead
        return f"{ahead + 1:,}" if self.position.is_exact else f"more than {ahead:,}"

    def line(self) -> str:
        """Everything in one line: `runs at 14:03:12 (a forecast), waits for …, position 212`."""
        parts = []
        if self.forecast is not None:
            parts.append(f"runs at {timezone.localtime(self.forecast.starts_at):%H:%M:%S} (a forecast)")
        limits = dict.fromkeys(reason.limit for reason in self.reasons if reason.limit)
        if limits:
            parts.append(f"waits for {', '.join(limits)}")
        elif self.text:
            parts.append(self.text)
        if self.place is not None:
            parts.append(f"position {self.place}")
        return ", ".join(parts)


@for_everyone()
def explain_waiting(job: Job) -> Waiting | None:
    """
    Explain why a job waits.

    It reads a bounded number of rows without locks, so the answer may be out of date a moment later.

    Returns:
        None where the job runs or has ended.
    """
    if job.status not in WAITING:
        return None
    # Use the database's clock, as the counters do: this process's clock may differ.
    now = datetime.fromtimestamp(database_now(), UTC)
    rules = aging_rules()
    limits = read_limits(job, now=now)
    # Weigh the calls for a job that leaves alone, too: it may wait behind jobs that leave together.
    merges = any(other.service == job.service and other.coalesce for other in all_handlers())
    weighed = merges or any(not limit.per_call for limit in limits)
    position = find_position(job, rules, now=now, weighed=weighed)
    stopped, paused = _stopped(job)
    times = [*paused, *_schedule(job, now)]
    after = max((reason.free_at for reason in times if reason.free_at), default=now)
    blocking = _limits(limits, after)
    turn = _turn(position, limits)
    slots = [] if times else _slots(job)
    waits_for_turn = turn if position is not None or not (slots or stopped) else []
    reasons = (*stopped, *times, *blocking, *([] if times else waits_for_turn), *slots)
    if not reasons and job.status == JobState.RATE_LIMITED:
        reasons = tuple(_next(limits))
    forecast = None
    if not stopped:
        not_before = max([reason.free_at for reason in (*times, *blocking) if reason.free_at], default=None)
        forecast = forecast_start(job, position, limits, rules, not_before=not_before, now=now)
        forecast = past_windows(forecast, job, now=now)
    return Waiting(reasons, position, forecast, _recheck_after(reasons, forecast, now))


@for_everyone()
def explain_stop(job: Job) -> str | None:
    """
    Say what stops a waiting job, in words; None if it only waits for its turn, its limits or its time.

    The text is that of `explain_waiting`. It takes few reads and no forecast, so it suits lists.
    """
    stopped, paused = _stopped(job)
    return next((reason.text for reason in (*stopped, *paused)), None)


def _stopped(job: Job) -> tuple[list[Reason], list[Reason]]:
    """The reasons that stop the job with no known end, and the pauses whose end is known."""
    others, tried = _others(job), _guard(job)
    paused = _pauses(job, is_explained=bool(others or tried))
    endless = [reason for reason in paused if reason.free_at is None]
    stopped = [*others, *tried, *_budget(job), *endless, *_outage(job), *_credentials(job)]
    return stopped, [reason for reason in paused if reason.free_at is not None]


def _others(job: Job) -> list[Reason]:
    """Return the dependencies that the job or its batch waits for; those that did not succeed come first."""
    if not job.held:
        return []
    owners = [one for one in (job.pk, job.batch_id) if one is not None]
    found = run_sql_as(_Other, "jobs", "explain_dependencies", {"owners": owners, "most": MAX_OTHERS_TOLD + 1})
    takes = _taken_from(job)
    told = [
        Reason("after", one.text + takes.get(one.on_id, "")) for one in found[:MAX_OTHERS_TOLD] if one.outcome != "met"
    ]
    if len(found) > MAX_OTHERS_TOLD and len(told) == MAX_OTHERS_TOLD:
        told.append(Reason("after", "and for others"))
    if found and all(one.let_go for one in found):
        return [Reason("after", "it was told to go on all the same: in a moment")]
    if found and not told:
        told.append(Reason("after", "what it waited for has ended: it goes on in a moment"))
    return told


def _taken_from(job: Job) -> dict[UUID, str]:
    """Say, by source job, which values of its result the job takes."""
    paths: dict[UUID, list[str]] = {}
    for one in shown_takes(job.takes):
        paths.setdefault(UUID(one["job"]), []).append(one["path"] or "all of it")
    return {source: f". From its result it takes {_some(found)}" for source, found in paths.items()}


def _some(names: list[str]) -> str:
    return ", ".join(names[:MAX_OTHERS_TOLD]) + (", …" if len(names) > MAX_OTHERS_TOLD else "")


def _guard(job: Job) -> list[Reason]:
    """The reason of a job that waits for the trial of its batch's first jobs."""
    if not job.held or job.batch_id is None:
        return []
    batch = Batch.objects.filter(pk=job.batch_id, guard_state=GuardState.TRIAL, trial_until__lt=job.pk).first()
    if batch is None or batch.guard is None:
        return []
    first = batch.guard["first"]
    return [Reason("guard", f"the first jobs of its batch are tried: it goes on once {first:,} have ended well enough")]


class _Other(NamedTuple):
    on_id: UUID
    on_batch: bool
    on_failure: str
    outcome: str
    let_go: bool

    @property
    def text(self) -> str:
        name = f"{'batch' if self.on_batch else 'job'} {self.on_id}"
        if self.outcome == "open":
            return f"{name} has to end first"
        ending = {
            OnFailure.HOLD: "it waits until a requeue of that one succeeds",
            OnFailure.CANCEL: "it is about to be cancelled",
            OnFailure.RUN: "it runs all the same once the others have ended",
        }
        return f"{name} did not succeed: {ending[OnFailure(self.on_failure)]}"


def _pauses(job: Job, *, is_explained: bool) -> list[Reason]:
    covered: dict[str, str] = {
        PauseSwitch.Scope.GLOBAL: "",
        PauseSwitch.Scope.PROJECT: job.project_id,
        PauseSwitch.Scope.SERVICE: job.service,
        PauseSwitch.Scope.KIND: job.kind,
        PauseSwitch.Scope.BATCH: str(job.batch_id),
        PauseSwitch.Scope.UNKNOWN: job.kind,
    }
    if job.held and job.last_error_code == INVALID_PAYLOAD:
        covered[PauseSwitch.Scope.UNFIT] = job.kind
    found = []
    if job.held and job.last_error_code == KEY_MISSING and PauseSwitch.objects.filter(scope="sealed").exists():
        found.append(Reason("paused", job.last_error_message))
    for switch in PauseSwitch.objects.filter(key__in=covered.values()).order_by("created_at"):
        scope = switch.scope  # a later version's scope is not in `covered`, so its switch is skipped
        if switch.key != covered.get(scope) or (
            scope == PauseSwitch.Scope.GLOBAL and job.project_id == PauseSwitch.EXEMPT
        ):
            continue
        if scope == PauseSwitch.Scope.UNFIT:
            found.append(Reason("paused", f"no worker takes its payload: {job.last_error_message}"))
        elif scope == PauseSwitch.Scope.UNKNOWN:
            if switch.pool != (job.pool or ""):
                continue
            found.append(Reason("paused", str(switch)))
        else:
            why = f": {switch.reason}" if switch.reason else ""
            span = f" for maintenance until {switch.until:%Y-%m-%d %H:%M} UTC" if switch.until else ""
            name = "its batch" if scope == PauseSwitch.Scope.BATCH else str(switch)
            found.append(Reason("paused", f"{name} is paused{span}{why}", switch.until))
    found += [
        Reason("paused", f"calls of {row.name} have stopped, and a job a minute tries: {row.last_error}")
        for row in RefusedCalls.objects.filter(stops.whose(job), stopped_at__isnull=False).order_by("pk")
    ]
    if job.held and not found and not is_explained and not BudgetWait.objects.filter(pk=job.pk).exists():
        found.append(Reason("paused", "it is held"))  # a pause was removed, and its jobs are being released in chunks
    return found


def _budget(job: Job) -> list[Reason]:
    wait = BudgetWait.objects.filter(pk=job.pk).first() if job.held else None
    budget = Budget.objects.filter(pk=wait.budget_id).first() if wait else None
    if wait is None or budget is None:
        return []
    now = standing_of(budget, wait.key)
    if wait.needed is None:
        unknown = why_unknown(wait.why, kind=job.kind, provider=wait.provider, model=wait.model)
        return [Reason("budget", f"budget {budget.name} cannot count it: {unknown}", limit=budget.name)]
    currency = settings.QUEUEOPS.currency
    left, amount, needed = (shown(one, currency) for one in (now.left, budget.amount, wait.needed))
    held = f", {shown(now.held, currency)} are held by calls under way" if now.held else ""
    return [
        Reason(
            code="budget",
            text=f"budget {budget.name} has no room: {left} of {amount} are left{held}; it can cost {needed}",
            free_at=now.ends_at,
            limit=budget.name,
            key=wait.key,
            unit="money",
            needed=wait.needed,
            available=now.left,
            capacity=budget.amount,
        )
    ]


def _outage(job: Job) -> list[Reason]:
    out = ServiceBreaker.objects.filter(
        service=job.service, target=job.target, project_id=job.project_id, opened_at__isnull=False
    )
    breaker = out.first()
    if breaker is None or breaker.probe_job_id == job.pk:
        return []
    # The error is left out: the last call that met it may be another user's.
    return [Reason("outage", f"{breaker.name} does not answer", next_try_at=breaker.next_probe_at)]


def _credentials(job: Job) -> list[Reason]:
    """The reason of a job whose pool has no credentials, or only refused credentials."""
    pool = pool_of_lane(job.lane)
    members = members_of(pool, job.project_id) if pool else ()
    if not pool or (members and not members[0].is_on_trial):
        return []
    count = CredentialPoolMember.objects.filter(pool__name=pool).count()
    if not count:
        return [Reason("credentials", f"the pool {pool} has no credential")]
    every = "its one credential" if count == 1 else f"each of its {count} credentials"
    return [
        Reason(
            "credentials",
            f"the provider of pool {pool} refuses {every}: a job a minute tries, the others wait until one is accepted",
        )
    ]


def _schedule(job: Job, now: datetime) -> list[Reason]:
    """The time that a job waits for. In a lane a rate-limited job's time is only a forecast, and no reason."""
    if job.scheduled_at is None:
        return []
    if job.status == JobState.RATE_LIMITED:
        return [] if job.lane else [Reason("limit", "a limit has no room", job.scheduled_at)]
    given = JobEvent.objects.filter(Q(to_status=JobState.RETRIED) | Q(data__operation="schedule"), job_id=job.pk)
    last = given.order_by("-id").first()
    by = (last.data or {}).get("actor") if last else None
    if job.status == JobState.RETRIED and by is None:
        failed = (last and last.message) or job.last_error_message or job.last_error_code or "a stop"
        return [Reason("retry_backoff", f"it is tried again after: {failed}", job.scheduled_at)]
    if job.status == JobState.QUEUED and job.scheduled_at <= now:
        return []
    done = "it was reset" if last and last.to_status else "it is scheduled for later"
    why = f": {last.message}" if last and last.message else ""
    return [Reason("scheduled", done + why, job.scheduled_at, by=by)]


def _limits(limits: tuple[LimitForecast, ...], after: datetime) -> list[Reason]:
    """The limits without room at `after`. Limits without a known end come first, then the last to free up."""
    closed = [limit for limit in limits if limit.is_closed]
    late = [limit for limit in closed if limit.free_at is None or limit.free_at > after.timestamp()]
    late.sort(key=lambda limit: math.inf if limit.free_at is None else limit.free_at, reverse=True)
    return [
        _of_limit(
            limit,
            "limit" if limit.cooled_until is None else "cooled_down",
            _words(limit),
            None if limit.free_at is None else foretold(limit.free_at),
        )
        for limit in late
    ]


def _of_limit(limit: LimitForecast, code: Code, text: str, free_at: datetime | None = None) -> Reason:
    return Reason(
        code=code,
        text=text,
        free_at=free_at,
        limit=limit.rule.name,
        key=limit.key,
        unit=limit.rule.unit,
        needed=limit.needed,
        available=limit.available,
        capacity=limit.capacity,
    )


def _words(limit: LimitForecast) -> str:
    if limit.cooled_until is not None:
        return f"{limit.rule.name} is cooled down: {limit.why or 'the provider refused calls'}"
    if limit.why:
        return f"{limit.rule.name} will never admit it: {limit.why}"
    unit = "calls in flight" if limit.rule.unit == "in_flight" else limit.rule.unit
    needs = "" if limit.per_call else f"; it needs {limit.needed:,.0f}"
    free = math.floor(limit.available)  # if it were rounded up, the limit would seem to have room
    return f"{limit.rule.name} has no room: {free:,} of {limit.capacity:,.0f} {unit} are free{_slowed(limit)}{needs}"


def _turn(position: Position | None, limits: Sequence[LimitForecast]) -> list[Reason]:
    if position is None:
        return [Reason("turn", "other jobs go first")]
    if not position.ahead:
        return []
    number = f"{position.ahead:,}" if position.is_exact else f"more than {position.ahead:,}"
    jobs = "job of its lane goes" if number == "1" else "jobs of its lane go"
    return [_paced("turn", f"{number} {jobs} first", limits)]


def _next(limits: Sequence[LimitForecast]) -> list[Reason]:
    """The reason of a job that a limit put back, and for which the limit has room now."""
    return [_paced("turn", "it goes with the next calls of its lane", limits)]


def _paced(code: Code, text: str, limits: Sequence[LimitForecast]) -> Reason:
    """A reason with the pace of the lane and the limit that sets the pace, which is the slowest."""
    with_pace = [limit for limit in limits if limit.rate_per_second]
    if not with_pace:
        return Reason(code, text)
    limit = min(with_pace, key=lambda one: (one.rate_per_second or 0.0) / max(1.0, one.needed))
    return _of_limit(limit, code, f"{text}; {limit.rule.name} lets {_pace(limit)} through{_slowed(limit)}")


def _pace(limit: LimitForecast) -> str:
    """`2.4 calls a second`, `a call every 1.3 s`, `900 tokens a second`."""
    rate = limit.rate_per_second or 0.0
    if not limit.per_call:
        return f"{rate:,.3g} {limit.noun} a second" if rate < 1 else f"{rate:,.0f} {limit.noun} a second"
    return f"{rate:,.3g} calls a second" if rate > 1 else f"a call every {1 / rate:,.2g} s"


def _slowed(limit: LimitForecast) -> str:
    slowed = f", slowed to {limit.pressure:.0%} by refusals of the provider" if limit.pressure < 1 else ""
    paced = f", paced by the ramp: {limit.share:.0%}" if limit.share < 1 else ""
    return slowed + paced


def _slots(job: Job) -> list[Reason]:
    """A reason if no executor that serves the job has a free slot; from the second crash on, only quarantine counts."""
    suspect = job.crash_count >= SUSPECT_CRASHES
    role = Executor.Role.QUARANTINE if suspect else Executor.Role.GENERAL
    alive = Executor.objects.filter(
        draining=False, heartbeat_at__gt=Now() - timedelta(seconds=SILENT_EXECUTOR_SECONDS), role=role
    )
    serving = alive.filter(pool__in=["", job.pool or ""])
    seats = serving.aggregate(all=Sum("slots"), free=Sum(F("slots") - F("in_flight")))
    if not seats["all"]:
        if job.pool:
            return [Reason("pool", f"it waits for a worker of pool {job.pool}, and none is running")]
        if alive.exists():
            return [Reason("pool", "no pool names it, and the workers that run serve pools only")]
        return [Reason("slots", "no quarantine worker is running" if suspect else "no worker is running")]
    if seats["free"] > 0:
        return []
    if suspect:
        return [Reason("slots", "its process died or stood still twice, and the quarantine runs another job")]
    of = f" of pool {job.pool}" if job.pool and not serving.filter(pool="").exists() else ""
    return [Reason("slots", f"all {seats['all']:,} slots of the workers{of} are busy")]


def _recheck_after(reasons: tuple[Reason, ...], forecast: Forecast | None, now: datetime) -> float:
    if any(reason.code == "paused" and reason.free_at is None for reason in reasons):
        return RECHECK_PAUSED_SECONDS
    times = [at for reason in reasons if (at := reason.free_at or reason.next_try_at)]
    if forecast is not None:
        times.append(forecast.starts_at)
    if not times:
        return RECHECK_TURN_SECONDS
    return min(MAX_RECHECK_SECONDS, max(1.0, (max(times) - now).total_seconds()))
