"""Forecasts of a batch before it is submitted: its cost and its end. Nothing is stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings

from jobs.features.dependencies.dependencies import Named
from jobs.lanes import read_lane
from jobs.models import Batch, Way
from jobs.services.submit.choose_delivery import WayRules
from jobs.services.submit.choose_lane import ChosenLane, alike_of, choose_lanes
from jobs.services.submit.documents.accept_document import Line, LineChecker, LineError
from jobs.services.submit.documents.preview import good_jobs
from jobs.services.submit.on_finish import prepare_callback
from jobs.services.submit.prepare import PreparedJob
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import EmptyBatch, refuse_when_full
from jobs.states import Priority
from queueops.core.clock import database_now, foretold
from queueops.tenancy.scope import for_everyone
from ratelimits.costs import NO_AMOUNTS, read_amounts
from ratelimits.limiter.estimates import Typical, typical_calls
from ratelimits.limiter.view.start_forecast import Asked
from ratelimits.models import Via

from .budgets import BudgetGap, find_gaps
from .costs import MissingPrice, PriceBounds, SubmissionCosts, TokenSum
from .end import ForecastEnd, LimitNeed, Work, foresee_end
from .queue_calls import LineJob, calls_left

MAX_REJECTED_LISTED = 100
TIERS = [Priority.URGENT, Priority.NORMAL, Priority.LOW]


class OfModel(NamedTuple):
    """A kind, service and model, by which jobs are counted."""

    kind: str
    service: str
    model: str


@dataclass(frozen=True, slots=True)
class SubmissionWay:
    """
    The forecast of a batch for one way.

    Attributes:
        price: In micro-units; None: a price is missing.
        price_range: The bounds of the price; None: no job's tokens are guessed, or there is no price.
        finish_at: When the last job would have ended; None: nobody knows, see `why`.
    """

    price: int | None
    finish_at: datetime | None
    seconds: float | None
    why: str = ""
    price_range: PriceBounds | None = None


@dataclass(frozen=True, slots=True)
class SubmissionForecast:
    """
    Attributes:
        jobs: How many jobs would be made.
        duplicates: Lines whose idempotency key a job with the same work already has.
        by_batch: How many of the jobs would go by batch as they are.
        accepted: Whether the batch would be accepted as it is: one bad line rejects all, unless it is `partial`.
        learned: Whether all tokens follow from calls like these; None: no job counts tokens.
        missing_prices: Services, models and ways without a price; the price of that way is None then.
        budgets: The budgets that have less left than the work should cost if it goes live.
        binding: Limits that take a part of the time, the slowest first.
        rejected: The first MAX_REJECTED_LISTED of `rejected_count` lines.
    """

    jobs: int
    duplicates: int
    by_batch: int
    accepted: bool
    by_model: Mapping[OfModel, int]
    tokens: Mapping[str, TokenSum]
    learned: bool | None
    currency: str
    live: SubmissionWay
    batch: SubmissionWay
    missing_prices: Sequence[MissingPrice]
    budgets: Sequence[BudgetGap]
    binding: Sequence[LimitNeed]
    rejected_count: int
    rejected: Sequence[LineError] = ()


@dataclass(slots=True)
class _Gathered:
    costs: SubmissionCosts = field(default_factory=SubmissionCosts)
    by_model: Counter[OfModel] = field(default_factory=Counter)
    lines: defaultdict[str | None, defaultdict[Priority, list[LineJob]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    largest: dict[str, Asked] = field(default_factory=dict)
    last_begins: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    by_batch: int = 0
    with_form: Counter[str] = field(default_factory=Counter)


def forecast_submission(
    lines: Iterable[Line],
    *,
    project_id: str,
    only_user: UUID | None = None,
    partial: bool = False,
    start_interval_seconds: float = 0.0,
    first_line: int = 1,
    after: Sequence[UUID | str] = (),
    on_finish: JobSpec | None = None,
) -> SubmissionForecast:
    """
    Say what would become of a batch if it were submitted now. Takes what `submit_batch` takes, and stores nothing.

    Args:
        after, on_finish: Checked, but they do not change the forecast.

    Raises:
        TooManyJobs, QueueFull, EmptyBatch, UnknownDependency, and whatever `prepare_callback` raises: As its
            submission would.
    """
    checker = LineChecker(
        project_id, only_user=only_user, start_interval_seconds=start_interval_seconds, first_line=first_line
    )
    if on_finish:
        prepare_callback(on_finish, Batch(project_id=project_id), rules=checker.rules)
    named = Named(project_id, only_user=only_user)
    named.read(after)
    named.check(after)
    now = datetime.fromtimestamp(database_now(), UTC)
    gathered = _Gathered()
    good = duplicates = 0
    for some in good_jobs(checker, lines, project_id):
        fresh = [one.job for one in some if not one.is_duplicate]
        good += len(some)
        duplicates += len(some) - len(fresh)
        _gather(gathered, fresh, project_id, now)
    if not checker.seen:
        raise EmptyBatch
    refuse_when_full(project_id, good - duplicates + bool(on_finish))
    return _told(gathered, checker, project_id=project_id, good=good, duplicates=duplicates, partial=partial, now=now)


def _gather(gathered: _Gathered, jobs: Sequence[PreparedJob], project_id: str, now: datetime) -> None:
    with for_everyone():
        typical = typical_calls({alike_of(job, project_id) for job in jobs})
    for job, chosen in zip(jobs, choose_lanes(jobs, project_id), strict=True):
        model = job.details.model or job.spec.model
        line = gathered.costs.add(job, chosen, typical.get(alike_of(job, project_id), Typical()))
        gathered.lines[chosen.lane][job.spec.priority].append(line)
        gathered.by_model[OfModel(job.handler.kind, job.service, model or "")] += 1
        calls = calls_left(line.costs, 0)
        gathered.calls[job.service] += round(calls)
        gathered.longest[job.service] = max(gathered.longest.get(job.service, 1.0), calls)
        gathered.by_batch += job.way.via == Way.BATCH
        if job.way.has_form:
            gathered.with_form[job.service] += 1
        gathered.last_begins = max(gathered.last_begins, _begins(job, now))
        if chosen.lane is not None:
            _keep_largest(gathered, chosen.lane, job, chosen)


def _begins(job: PreparedJob, now: datetime) -> float:
    """Return in how many seconds a job may begin."""
    if job.spec.scheduled_at is not None:
        return (job.spec.scheduled_at - now).total_seconds()
    return job.delay_seconds or job.spec.delay_seconds or 0.0


def _keep_largest(gathered: _Gathered, lane: str, job: PreparedJob, chosen: ChosenLane) -> None:
    kept = gathered.largest.get(lane)
    known = job.details.known_cost
    size = chosen.cost if known is None else known
    if kept is None or size > (kept.cost if kept.known_cost is None else kept.known_cost):
        amounts = read_amounts(chosen.units) if chosen.units else NO_AMOUNTS
        gathered.largest[lane] = Asked(read_lane(lane).subject, chosen.cost, known, amounts)


def _told(
    gathered: _Gathered,
    checker: LineChecker,
    *,
    project_id: str,
    good: int,
    duplicates: int,
    partial: bool,
    now: datetime,
) -> SubmissionForecast:
    work = Work(
        project=project_id,
        lanes={lane: [job for tier in TIERS for job in tiers[tier]] for lane, tiers in gathered.lines.items()},
        largest=gathered.largest,
        services=gathered.calls,
        kinds=frozenset(of.kind for of in gathered.by_model),
        scheduled_seconds=gathered.last_begins,
        longest=gathered.longest,
    )
    end = foresee_end(work, now=now)
    with for_everyone():
        live_price, live_missing = gathered.costs.price(Via.LIVE, now)
        live_range = gathered.costs.price_range(Via.LIVE, now)
        prices = gathered.costs.prices_of_users(now)
        batch, batch_missing = _by_batch(gathered, checker.rules.ways, end, now=now)
    counted = gathered.costs.learned + gathered.costs.guessed
    return SubmissionForecast(
        jobs=good - duplicates,
        duplicates=duplicates,
        by_batch=gathered.by_batch,
        accepted=bool(good) and (partial or not checker.error_count),
        by_model=dict(sorted(gathered.by_model.items())),
        tokens=gathered.costs.tokens if counted else {},
        learned=not gathered.costs.guessed if counted else None,
        currency=settings.QUEUEOPS.currency,
        live=SubmissionWay(live_price, _at(now, end.seconds), end.seconds, end.why, live_range),
        batch=batch,
        missing_prices=list(dict.fromkeys([*live_missing, *batch_missing])),
        budgets=find_gaps(project_id, prices, only_user=checker.rules.only_user),
        binding=end.limits,
        rejected_count=checker.error_count,
        rejected=checker.errors[:MAX_REJECTED_LISTED],
    )


def _by_batch(
    gathered: _Gathered, ways: WayRules, live: ForecastEnd, *, now: datetime
) -> tuple[SubmissionWay, list[MissingPrice]]:
    """Forecast the way by batch: jobs that can go by batch take as long as 95 % of batches do; the others go live."""
    if not gathered.with_form:
        return SubmissionWay(None, None, None, "no job of it can go by a batch of its provider"), []
    price, missing = gathered.costs.price(Via.BATCH, now)
    between = gathered.costs.price_range(Via.BATCH, now)
    seconds = max(ways.batch_seconds(service) for service in gathered.with_form)
    if gathered.with_form.total() < gathered.by_model.total():
        if live.seconds is None:
            return SubmissionWay(price, None, None, live.why, between), missing
        seconds = max(seconds, live.seconds)
    return SubmissionWay(price, _at(now, seconds), seconds, price_range=between), missing


def _at(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else foretold(now.timestamp() + seconds)
