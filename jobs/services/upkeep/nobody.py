"""
The web processes' watch over work that waits while no executor lives. They open the alert, and send it themselves.

Deliveries of alerts are jobs. While no executor lives, waiting deliveries are carried out here. One process carries out
each delivery, and locks its job's row meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from jobs.features.watches.notify_alerts import KIND, PROJECT, send_unsent
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import RunningJob, close_handlers, find_handler
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.explain.snapshots import counts_by_project
from jobs.services.operate.job_actions import carry_out_cancel, carry_out_schedule
from jobs.states import UNFINISHED, JobState
from queueops.core.clock import Now
from queueops.core.values.numbers import numbered
from queueops.tenancy.moves import projects_away
from ratelimits.alerts.alerts import open_alert, reconcile
from ratelimits.models import QuotaAlert

logger = logging.getLogger(__name__)

NOBODY_SECONDS = 120.0  # without an executor, before the alert opens
EVERYBODY = "*"
MAX_DELIVERED = 20  # messages of one call
MAX_ALERTS_SENT = 20  # alerts of one call
REFUSED_AGAIN_SECONDS = 60.0  # before a message that was not accepted is tried once more
MAX_DELAYED = 10_000  # scheduled jobs that are subtracted from the waiting jobs
ACTOR = "system:web"


@dataclass(frozen=True, slots=True)
class NobodyWorks:
    """
    No executor lives, and work waits.

    Attributes:
        jobs: How many unfinished jobs wait. Scheduled jobs are left out, as are projects that move or have moved away.
        last_seen: The latest heartbeat of any executor; None: no executor is known.
    """

    jobs: int
    last_seen: datetime | None

    @property
    def words(self) -> str:
        return f"no executor lives, and {numbered(self.jobs, 'job waits', 'jobs wait')}"


def nobody_works() -> NobodyWorks | None:
    """Return the work that waits while no executor lives; None: an executor lives, all is paused, or no job waits."""
    silent = Now() - timedelta(seconds=settings.QUEUEOPS.lease_seconds)
    if Executor.objects.filter(heartbeat_at__gt=silent).exists():
        return None
    if PauseSwitch.objects.filter(scope=PauseSwitch.Scope.GLOBAL).exists():
        return None
    away = projects_away()
    waiting = sum(
        sum(counts[state] for state in UNFINISHED)
        for project, counts in counts_by_project().items()
        if project not in away | {PROJECT}
    )
    if waiting:
        delayed = Job.objects.filter(status=JobState.QUEUED, scheduled_at__gt=Now()).exclude(project__in=away)
        waiting -= delayed.exclude(project=PROJECT).order_by().values("pk")[:MAX_DELAYED].count()
    if waiting <= 0:
        return None
    return NobodyWorks(waiting, Executor.objects.aggregate(last=Max("heartbeat_at"))["last"])


class NobodyWatch:
    """
    The watch of one web process. Several processes share one alert, as only one alert of this kind can be open, and
    send each message once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None  # since when no executor has been seen alive, monotonic

    def look(self) -> None:
        """Open the alert after NOBODY_SECONDS and send waiting messages, or resolve it; call this every few seconds."""
        found = nobody_works()
        if found is None:
            self._since = None
            reconcile(QuotaAlert.Kind.NO_EXECUTOR, [])
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        silent_for = (timezone.now() - found.last_seen).total_seconds() if found.last_seen else 0.0
        if max(now - self._since, silent_for) < NOBODY_SECONDS:
            return
        open_alert(
            QuotaAlert.Kind.NO_EXECUTOR,
            EVERYBODY,
            severity=QuotaAlert.Severity.CRITICAL,
            message=f"For {NOBODY_SECONDS / 60:.0f} minutes {found.words}: start workers (manage.py up, or qcluster)",
            figures={
                "jobs": found.jobs,
                "last_seen": found.last_seen.isoformat(timespec="seconds") if found.last_seen else None,
            },
        )
        send_unsent(MAX_ALERTS_SENT)
        deliver_waiting()


def deliver_waiting() -> int:
    """Carry out the deliveries of alerts that wait for an executor; returns how many messages were accepted."""
    accepted = 0
    for _ in range(MAX_DELIVERED):
        sent = _deliver_next()
        if sent is None:
            break
        accepted += sent
    return accepted


@transaction.atomic
def _deliver_next() -> bool | None:
    """
    Deliver one message; returns whether it was accepted. None: no unlocked delivery waits.

    A message that was sent but not committed is sent again under the same name, so its receiver can recognise it.
    """
    due = Q(scheduled_at=None) | Q(scheduled_at__lte=Now())
    waiting = Job.objects.of_project(PROJECT).filter(due, kind=KIND, status=JobState.QUEUED, held=False)
    job = waiting.order_by("pk").select_for_update(skip_locked=True, of=("self",)).first()
    if job is None:
        return None
    try:
        asyncio.run(_carry_out(job))
    except Exception as error:  # go on with the next message after any error; this one is tried again later
        refused = isinstance(error, ProviderError)
        logger.warning("the message %s was not accepted: %s", job.effect_key, error, exc_info=not refused)
        carry_out_schedule([job.pk], seconds=REFUSED_AGAIN_SECONDS, actor=ACTOR, reason=f"not accepted: {error}"[:500])
        return False
    carry_out_cancel([job.pk], actor=ACTOR, reason="sent by a web process, for no executor lives")
    return True


async def _carry_out(job: Job) -> None:
    handler = find_handler(job.kind)
    function: Any = handler.function
    running = RunningJob(
        id=job.pk,
        payload=handler.schema.validate_python(job.payload),
        project=job.project_id,
        user_id=None,
        effect_key=job.effect_key,
        attempt=1,
        report=lambda percent, message: None,
    )
    try:
        async with asyncio.timeout(handler.timeout.total_seconds()):
            await function(running)
    finally:
        await close_handlers()
