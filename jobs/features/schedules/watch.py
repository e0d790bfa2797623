"""Opens alerts about schedules that submit nothing, because their jobs are refused."""

from __future__ import annotations

from jobs.models import Schedule, ScheduleFire
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

REFUSALS_TOLD = 2  # in a row: a single refusal may come from a queue that is full for a moment
MAX_TOLD = 200


def watch_schedules() -> None:
    """
    Alert about schedules that were refused REFUSALS_TOLD times in a row, until a fire is accepted or the schedule is
    paused.
    """
    rows = Schedule.objects.filter(refused_in_a_row__gte=REFUSALS_TOLD, next_due_at__isnull=False)
    reconcile(QuotaAlert.Kind.SCHEDULE, [_opening(row) for row in rows.order_by("-refused_in_a_row")[:MAX_TOLD]])


def _opening(row: Schedule) -> Opening:
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
