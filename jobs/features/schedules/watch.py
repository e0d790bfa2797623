"""Opens alerts about schedules that submit nothing: their jobs are refused, or no host can make their fires."""

from __future__ import annotations

from datetime import timedelta

from jobs.features.schedules.fire_schedules import due_schedules
from jobs.models import Schedule, ScheduleFire
from queueops.core.clock import database_moment
from queueops.core.postgres.zones import known_zone
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

REFUSALS_TOLD = 2  # in a row: a single refusal may come from a queue that is full for a moment
MAX_TOLD = 200
FIRE_LATE = timedelta(minutes=5)  # after a standstill, workers make fires one after the other


def watch_schedules() -> None:
    """
    Alert about schedules that were refused REFUSALS_TOLD times in a row, until a fire is accepted or the schedule is
    paused. Alert about schedules whose fire nobody has made for FIRE_LATE, too.
    """
    refused = Schedule.objects.filter(refused_in_a_row__gte=REFUSALS_TOLD, next_due_at__isnull=False)
    found = [_refused(row) for row in refused.order_by("-refused_in_a_row")[:MAX_TOLD]]
    told = {one.subject for one in found}
    late = due_schedules(database_moment() - FIRE_LATE)[:MAX_TOLD]
    reconcile(QuotaAlert.Kind.SCHEDULE, found + [_stuck(row) for row in late if str(row.pk) not in told])


def _stuck(row: Schedule) -> Opening:
    zone = "" if known_zone(row.time_zone) else f"; its time zone {row.time_zone} is not known here"
    return Opening(
        QuotaAlert.Kind.SCHEDULE,
        str(row.pk),
        QuotaAlert.Severity.WARNING,
        f"The schedule {row.name} of {row.project_id} has been due since {row.next_fire_at:%Y-%m-%d %H:%M} UTC, and no"
        f" host has made its fire{zone}",
        {"schedule": str(row.pk), "projects": [row.project_id]},
    )


def _refused(row: Schedule) -> Opening:
    refusal = row.fires.filter(outcome=ScheduleFire.Outcome.REFUSED).order_by("-due_at").first()
    why = f": {refusal.error_message[:300]} ({refusal.error_code})" if refusal else ""
    return Opening(
        QuotaAlert.Kind.SCHEDULE,
        str(row.pk),
        QuotaAlert.Severity.WARNING,
        f"The schedule {row.name} of {row.project_id} was refused {row.refused_in_a_row:,} times in a row{why}",
        {
            "schedule": str(row.pk),
            "refused_in_a_row": row.refused_in_a_row,
            "error_code": refusal.error_code if refusal else "",
            "projects": [row.project_id],
        },
    )
