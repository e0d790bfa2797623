"""House-keeping: first rows, rescue of lapsed leases, expired jobs. Each duty is idempotent and short."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Count
from pydantic import ValidationError

from jobs.aging import DEFAULT_RULES
from jobs.backoff import TEMPLATES
from jobs.classify import POISON, Failure
from jobs.features.flow.flow import SEQUENCES
from jobs.features.pools.assign import PASSES
from jobs.features.pools.pools import alive
from jobs.features.served_kinds.served_kinds import version_of
from jobs.handlers.registry import UnknownKind, find_handler
from jobs.models import AgingRule, Executor, Job, JobEvent, RetryPolicy
from jobs.services.finish.claimed import holder_of
from jobs.services.finish.finish import bury
from jobs.services.operate.epochs import ensure_epoch
from jobs.states import RUNNING, WAITING, JobState
from jobs.transitions import Move, move_jobs
from queueops.core.clock import Now
from queueops.core.notify import Channel, notify
from queueops.core.sealing import STANDS_IN
from queueops.core.sql import run_sql_as
from ratelimits.limiter.decide import reclaim
from ratelimits.money.holds import losing_known

from . import executors
from .partitions import make_partitions

logger = logging.getLogger(__name__)

RESCUE_AT_ONCE = 500
MAX_CRASHES = 3
FREE_LOSSES = 2
LOST_WITH_HOST = "lost_with_host"  # the key in an event's data for the fencing token of a claim lost with its host
LOST = "all executors of its host's cluster went away"


class Around(NamedTuple):
    """
    Whether there is work for the executors that do the common duties.

    Attributes:
        is_under_way: A job runs, or waits for anything but a time or a person.
        is_due: One of the duties has something to do.
    """

    is_under_way: bool
    is_due: bool


def look_around() -> Around:
    """Look for work of all duties in one statement, because most of the time there is none."""
    logs = {"logs": list(SEQUENCES), "sequences": list(SEQUENCES.values())}
    [row] = run_sql_as(Around, "jobs", "look_around", {**logs, "passes": PASSES})
    return row


def prepare_database() -> None:
    """
    Make what a new or emptied database needs before the first job: an epoch, default rules and the log's partitions.
    """
    ensure_epoch()
    if not AgingRule.objects.exists():
        AgingRule.objects.bulk_create(
            AgingRule(
                tier=tier,
                base=rule.base,
                cap=rule.cap,
                first_after_seconds=rule.first_after,
                first_score=rule.first_score,
                step_seconds=rule.step,
                promote_after_seconds=rule.promote_after,
                promote_to=rule.promote_to,
            )
            for tier, rule in DEFAULT_RULES.items()
        )
    known = set(RetryPolicy.objects.values_list("name", flat=True))
    if missing := TEMPLATES.keys() - known:  # in a new database, or after an upgrade
        fresh = [
            RetryPolicy(
                name=name,
                initial_seconds=policy.initial,
                multiplier=policy.multiplier,
                max_delay_seconds=policy.max_delay,
                max_retries=policy.max_retries,
                jitter=policy.jitter,
                window_seconds=policy.window,
            )
            for name, policy in TEMPLATES.items()
            if name in missing
        ]
        RetryPolicy.objects.bulk_create(fresh, ignore_conflicts=True)
    make_partitions()


@transaction.atomic()
def rescue_lapsed(left: list[UUID] | None = None) -> int:
    """
    Take back jobs whose executor did not renew its lease: killed, cut off, or frozen.

    This costs a crash and no attempt. A job that has brought down its process MAX_CRASHES times is buried as poison. A
    job that was running and may not be repeated is buried as `outcome_unknown`. The others run again.

    Where every executor of a cluster went at once, the host is to blame, and no job is charged a crash. A job that was
    lost this way FREE_LOSSES times may be the cause, and is charged from then on (docs/adr/0029).

    Holds on limits (estimates and places in flight) are given back. Holds on budgets are counted as spent: the calls
    may have been made.

    Args:
        left: Gets the jobs that are left to another process, because this one cannot read whether they may run again.

    Returns:
        How many were taken back. At most RESCUE_AT_ONCE; the rest is for the next sweep.
    """
    lapsed = _lapsed([] if left is None else left)
    away = executors.vanished(lapsed, lease_seconds=settings.QUEUEOPS.lease_seconds)
    innocent = away - _often_lost(away)
    moves: dict[str, list[Move]] = {"rescue": [], "bury": [], "hand_back": [], "fail": []}
    reasons: dict[UUID, tuple[str, Failure]] = {}
    for job in lapsed:
        failure = _fate(job, crashed=job.pk not in innocent)
        given_back, ended = ("hand_back", "fail") if job.pk in innocent else ("rescue", "bury")
        data = json.dumps({LOST_WITH_HOST: job.fencing_token}) if job.pk in away else None
        if failure is None:
            message = LOST if job.pk in innocent else "its executor stopped renewing the lease"
            move = Move(job.pk, token=job.fencing_token, delay_seconds=0, message=message, data=data)
            moves[given_back].append(move)
        else:
            reasons[job.pk] = (job.kind, failure)
            move = Move(job.pk, token=job.fencing_token, error_code=failure.code, message=failure.message, data=data)
            moves[ended].append(move)
    for edge in ("rescue", "hand_back"):
        move_jobs(edge, moves[edge])
    for edge in ("bury", "fail"):
        bury(edge, reasons, moves[edge])
    losing_known([(job.pk, job.fencing_token) for job in lapsed])  # locks budgets before counters, as claims do
    reclaim([holder_of(job.pk, job.fencing_token) for job in lapsed])
    if lapsed:
        notify(Channel.READY)
        logger.warning(
            "%s jobs with a lapsed lease came back, %s were buried; %s of them went with a whole cluster of executors",
            len(lapsed) - len(reasons),
            len(reasons),
            len(away),
        )
    return len(lapsed)


def _lapsed(left: list[UUID]) -> list[Job]:
    """Lock jobs with a lapsed lease that this process can judge; see rescue_lapsed."""
    rows = Job.objects.filter(status__in=RUNNING, lease_expires_at__lt=Now())
    rows = rows.order_by("id").select_for_update(skip_locked=True)
    elsewhere, judged = cache(_served_elsewhere), list[Job]()
    found = list(rows[:RESCUE_AT_ONCE])
    while found:  # behind those that are left, others wait
        begun = [job for job in found if job.status == JobState.IN_PROGRESS]  # the others may run again
        unread = {job.pk for job in begun if is_closed(job) or _is_strange(job, elsewhere)}
        left.extend(unread)
        judged += [job for job in found if job.pk not in unread]
        if len(found) < RESCUE_AT_ONCE or len(judged) >= RESCUE_AT_ONCE:
            break
        found = list(rows.filter(pk__gt=found[-1].pk)[:RESCUE_AT_ONCE])
    if left:
        logger.warning("%s jobs with a lapsed lease are left to a host that can read their payload", len(left))
    return judged[:RESCUE_AT_ONCE]


def _served_elsewhere() -> dict[str, set[str]]:
    """The payload versions of each kind that living executors serve, this process's own among them."""
    versions: dict[str, set[str]] = {}
    for kinds in Executor.objects.filter(alive()).values_list("kinds", flat=True):
        for kind, version in kinds.items():
            versions.setdefault(kind, set()).add(version)
    return versions


def _is_strange(job: Job, elsewhere: Callable[[], Mapping[str, Collection[str]]]) -> bool:
    """Whether a running job's kind or payload is unknown here, and a living executor of another release may know it."""
    try:
        handler = find_handler(job.kind)
        handler.schema.validate_python(job.payload)
    except UnknownKind:
        return job.kind in elsewhere()
    except ValidationError:
        return bool(set(elsewhere().get(job.kind, ())) - {version_of(handler)})
    except Exception:  # noqa: BLE001 - is_repeatable tells of it
        return False
    return False


def _fate(job: Job, *, crashed: bool) -> Failure | None:
    """Why a job with a lapsed lease may not run again; None: it may."""
    if crashed and job.crash_count + 1 >= MAX_CRASHES:
        return Failure(POISON, "crash", f"its process died or stood still {job.crash_count + 1} times while it ran")
    if job.status == JobState.IN_PROGRESS and not is_repeatable(job):
        whose = "its process died" if crashed else LOST
        return Failure("outcome_unknown", "crash", f"{whose} while the call was under way")
    return None


def _often_lost(jobs: Collection[UUID]) -> set[UUID]:
    """Return the jobs that were lost with a whole cluster FREE_LOSSES times: they may be the cause."""
    lost = JobEvent.objects.filter(job_id__in=jobs, data__has_key=LOST_WITH_HOST)
    often = lost.values("job_id").annotate(times=Count("id")).filter(times__gte=FREE_LOSSES).order_by()
    return set(often.values_list("job_id", flat=True)) if jobs else set()


def is_closed(job: Job) -> bool:
    """
    Whether this process cannot tell if the job may be repeated: the payload decides, and the process lacks its key. A
    process that has the key judges.

    Looks at the payload only for kinds whose payload decides whether a job may be repeated.
    """
    try:
        tells = callable(find_handler(job.kind).idempotent)
    except UnknownKind:
        return False
    return tells and isinstance(job.payload, str) and job.payload.startswith(STANDS_IN)


def is_repeatable(job: Job) -> bool:
    """Whether doing its work twice does no harm, as far as its handler is known here."""
    try:
        handler = find_handler(job.kind)
        return handler.is_repeatable(handler.schema.validate_python(job.payload))
    except (UnknownKind, ValidationError):
        return False
    except Exception:
        # An error in the handler's own code, for one payload, must not keep all other jobs from being taken back.
        logger.exception("job %s (%s): whether it may be repeated cannot be told", job.pk, job.kind)
        return False


@transaction.atomic()
def expire_waiting() -> int:
    """Bury waiting jobs whose producer's time limit has passed; at most RESCUE_AT_ONCE. Returns how many."""
    expired = (
        Job.objects.filter(status__in=WAITING, expires_at__isnull=False, expires_at__lte=Now())
        .order_by("id")
        .select_for_update(skip_locked=True)[:RESCUE_AT_ONCE]
    )
    failure = Failure("expired", "expired", "it waited longer than its producer allowed")
    return len(bury("reject", {job.pk: (job.kind, failure) for job in expired}))
