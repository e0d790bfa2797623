"""Upkeep of open batches: measures their speed, forecasts their end and closes them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from jobs.features.forecast.forecast import limits_of_batch
from jobs.features.outages.outages import count_held_of
from jobs.features.webhooks.tell import send_batch_webhooks
from jobs.features.windows.windows import spans_over
from jobs.models import Batch, Dependency, MaintenanceWindow
from jobs.services.explain.snapshots import Counts, batch_counts, calls_made
from jobs.services.operate.scheduled_jobs import scheduled
from jobs.states import TERMINAL, WAITING, GuardState, JobState
from jobs.times.calendar import Span, stretched
from queueops.core.clock import Now, database_now
from queueops.core.processes.isolate_failures import one_by_one

CLOSE_AT_ONCE = 20
RATE_MEMORY_SECONDS = 10.0
# The largest share of the rate that one sample replaces: a sample may cover only the silent part of a limit's window.
MAX_OF_RATE = 0.5
FORESEEN_AT_ONCE = 50
MAX_KINDS_READ = 100  # waiting jobs of a batch that are read for its services and kinds
FORESEE_SECONDS = 0.05  # an executor claims nothing meanwhile
RANGE_FACTOR = 1.5  # past speed and the limits may differ by this factor before both forecasts are stored


def finish_batches() -> list[UUID]:
    """
    Sample the rate of open batches, close batches whose items have all ended, and send their webhooks.

    Returns:
        The batches that could not be closed here, for example because this host lacks the key for a message's payload.
    """
    open_batches = list(Batch.objects.filter(finished_at=None))
    ids = [batch.pk for batch in open_batches]
    counts, begun = batch_counts(ids), calls_made(ids)
    ended, moving = [], []
    for batch in open_batches:
        finished = _finished(counts[batch.pk])
        done = int(finished + begun.get(batch.pk, 0.0))
        if finished == sum(counts[batch.pk].values()):
            ended.append(batch.pk)
        elif done != batch.sampled_finished or batch.sampled_at is None:
            _sample_rate(batch, done)
            moving.append(batch)
    Batch.objects.bulk_update(moving, ["rate_per_second", "sampled_at", "sampled_finished"], batch_size=500)
    # A bounded part, because an executor does this between its claims. The part is random: batches that cannot be
    # closed, because their webhooks cannot be sent, would otherwise crowd out all others for ever.
    some = random.sample(ended, min(len(ended), CLOSE_AT_ONCE))
    return one_by_one(some, _close_batch, what="closing the batch")


def foresee_batches() -> None:
    """
    Store when open batches should end, the oldest forecasts first. Called once a second.

    Stops after FORESEEN_AT_ONCE batches or FORESEE_SECONDS, but stores at least one forecast.
    """
    # Leave out paused batches without a forecast, which would be written each second for nothing.
    moving = Batch.objects.filter(finished_at=None).exclude(paused=True, ends_at=None)
    batches = list(moving.order_by(F("foreseen_at").asc(nulls_first=True), "pk")[:FORESEEN_AT_ONCE])
    ids = [batch.pk for batch in batches]
    counts, begun, held = batch_counts(ids), calls_made(ids), count_held_of(batches)
    waiting = set(Dependency.objects.filter(owner_id__in=counts).values_list("owner_id", flat=True))
    until = time.monotonic() + FORESEE_SECONDS
    done = []
    for batch in batches:
        is_stopped = batch.paused or batch.pk in waiting or bool(held.get(batch.pk))
        _foresee(batch, counts[batch.pk], begun=begun.get(batch.pk, 0.0), is_stopped=is_stopped)
        done.append(batch)
        if time.monotonic() > until:
            break
    Batch.objects.bulk_update(done, ["ends_at", "ends_earliest", "foreseen_at"], batch_size=FORESEEN_AT_ONCE)


@transaction.atomic()
def _close_batch(batch_id: UUID) -> None:
    # The lock waits for a requeue that is adding to this batch, and the counts are read after it. Otherwise a batch
    # with a queued job could be announced as ended.
    batch = Batch.objects.select_for_update().get(pk=batch_id)
    counts = batch_counts([batch_id])[batch_id]
    if batch.finished_at is None and _finished(counts) == sum(counts.values()):
        Batch.objects.filter(pk=batch_id).update(finished_at=Now(), rate_per_second=None, trial_until=None)
        # A guard has nothing left to stop.
        Batch.objects.filter(pk=batch_id, guard_state=GuardState.TRIAL).update(guard_state=GuardState.PASSED)
        send_batch_webhooks(batch)


def _finished(counts: Counts) -> int:
    return sum(counts[state] for state in TERMINAL)


def _sample_rate(batch: Batch, finished: int) -> None:
    """Smooth the rate over about ten seconds, so that the ETA does not jump with every flush."""
    now = timezone.now()
    rate = batch.rate_per_second
    if batch.sampled_at is not None:
        seconds = max(0.001, (now - batch.sampled_at).total_seconds())
        latest = max(0, finished - batch.sampled_finished) / seconds
        share = min(MAX_OF_RATE, seconds / RATE_MEMORY_SECONDS)
        rate = latest if rate is None else rate + share * (latest - rate)
    batch.rate_per_second, batch.sampled_at, batch.sampled_finished = rate, now, finished


def _foresee(batch: Batch, counts: Counts, *, begun: float, is_stopped: bool) -> None:
    now = datetime.fromtimestamp(database_now(), UTC)
    batch.foreseen_at, batch.ends_at, batch.ends_earliest = now, None, None
    if not is_stopped and (ends := _ends(batch, counts, begun, now)):
        spans, last_begins = _windows_over(batch, now), _last_begins(batch, counts, now)
        ends = [stretched(max(end, last_begins), spans, now) for end in ends]
        batch.ends_at = now + timedelta(seconds=max(ends))
        if len(ends) > 1 and max(ends) > RANGE_FACTOR * min(ends):
            batch.ends_earliest = now + timedelta(seconds=min(ends))


def _last_begins(batch: Batch, counts: Counts, now: datetime) -> float:
    """Return in how many seconds the last scheduled job of a batch may begin; 0: the batch has none."""
    if not counts[JobState.QUEUED]:
        return 0.0
    jobs = batch.jobs.filter(scheduled()).order_by("-scheduled_at")
    at = jobs.values_list("scheduled_at", flat=True).first()
    return 0.0 if at is None else (at - now).total_seconds()


def _windows_over(batch: Batch, now: datetime) -> Sequence[Span]:
    """Return the maintenance windows that hold some of the batch's jobs, going by MAX_KINDS_READ waiting jobs."""
    if not MaintenanceWindow.objects.filter(next_change_at__isnull=False).exists():
        return []
    waiting = batch.jobs.filter(status__in=sorted(WAITING)).order_by()
    kinds = list(waiting.values_list("service", "kind")[:MAX_KINDS_READ])
    services, kinds_of = {service for service, _ in kinds}, {kind for _, kind in kinds}
    return spans_over(batch.project_id, services=services, kinds=kinds_of, now=now)


def _ends(batch: Batch, counts: Counts, begun: float, now: datetime) -> Sequence[float]:
    """
    Return the seconds left, forecast by past speed and by the limits; empty while neither covers the whole batch.

    Past speed shows what the limits do not: slots, slow handlers. The limits show what past speed does not show yet: a
    burst that is over, a changed cap, a batch that has not begun. Where a full limit sets the pace of all that is left,
    past speed is ignored: large calls and calls for many jobs end in bursts. Limits that would allow an earlier end
    than past speed are ignored.
    """
    left = sum(counts.values()) - _finished(counts)
    if not left:
        return []
    speed = [max(0.0, left - begun) / batch.rate_per_second] if batch.rate_per_second else []
    waits = begun or any(counts[state] for state in WAITING)
    limited = limits_of_batch(batch.pk, counts, now=now) if waits else None
    if limited is None or not (speed or limited.is_whole):
        return speed
    if limited.is_whole and limited.is_full:
        return [limited.seconds]
    return [*speed, limited.seconds] if limited.seconds >= max(speed, default=0.0) else speed
