"""Watches what could be restored if the database were lost: the last backup's age, and whether its log is archived."""

from __future__ import annotations

from django.conf import settings

from queueops.audit.backups import last_backup
from queueops.core.postgres.archiver import archiver_standing
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

FAILING_SECONDS = 300.0  # PostgreSQL tries again: a repository that just restarts needs no alert
BACKUP, ARCHIVE = "backup", "archive"  # subjects


def watch_backups() -> None:
    """Alert about a backup older than QUEUEOPS_ALERT_BACKUP_HOURS, and about a log that its archive does not take."""
    found, hours = [], settings.QUEUEOPS.alert_backup_hours
    last = last_backup()
    if hours and last.seconds > hours * 3600:
        age = f"{last.seconds / 3600:,.0f} h"
        message = f"The last backup was noted {age} ago ({last.by})" if last.at else f"No backup was noted in {age}"
        figures = {"seconds": round(last.seconds)}
        found.append(Opening(QuotaAlert.Kind.BACKUP, BACKUP, QuotaAlert.Severity.WARNING, message, figures))
    archiver = archiver_standing()
    if archiver.is_failing and archiver.seconds > FAILING_SECONDS:
        message = (
            f"PostgreSQL cannot archive its log: nothing has arrived for {archiver.seconds / 60:,.0f} min; "
            f"{archiver.segment} failed last. Its disk fills, and what came since is lost with it"
        )
        figures = {"seconds": round(archiver.seconds), "failures": archiver.failures}
        found.append(Opening(QuotaAlert.Kind.BACKUP, ARCHIVE, QuotaAlert.Severity.CRITICAL, message, figures))
    reconcile(QuotaAlert.Kind.BACKUP, found)
