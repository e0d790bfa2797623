"""The doctor's questions about backups."""

from django.conf import settings

from queueops.audit.backups import last_backup
from queueops.core.postgres.archiver import archiver_standing

from .finding import DoctorFinding, fail, ok, scalar, warn


def examine_backups() -> DoctorFinding:
    if scalar("SELECT to_regclass('jobs_auditentry')") is None:
        return warn("backups", "no table yet", "Run manage.py migrate.")
    last, hours = last_backup(), settings.QUEUEOPS.alert_backup_hours
    shown = f"the last was noted {last.seconds / 3600:,.0f} h ago ({last.by})" if last.at else "none was noted"
    if not hours:
        return ok("backups", f"{shown}; nobody watches (QUEUEOPS_ALERT_BACKUP_HOURS)")
    if last.seconds > hours * 3600:
        advice = "See that manage.py backup, or what runs note_backup, succeeds. See docs/runbooks/backup.md."
        return warn("backups", shown, advice)
    return ok("backups", shown)


def examine_archive() -> DoctorFinding:
    standing = archiver_standing()
    if not standing.is_on:
        shown = "off; with the database is lost what came since the last backup"
        return ok("archive of the log", shown)
    if standing.is_failing:
        shown = f"nothing has arrived for {standing.seconds / 60:,.0f} min; {standing.segment} failed last"
        advice = "The server's log has archive_command's complaint. See docs/runbooks/backup.md."
        return fail("archive of the log", shown, advice)
    shown = f"the last segment arrived {standing.seconds / 60:,.0f} min ago"
    return ok("archive of the log", shown)


def examine_outcome_log() -> DoctorFinding:
    directory = settings.QUEUEOPS.outcome_log
    if directory:
        return ok("outcome log", str(directory))
    shown = "off; after a restore nobody can tell what had run since"
    if settings.QUEUEOPS.debug:
        return ok("outcome log", shown)
    advice = "Set QUEUEOPS_OUTCOME_LOG to a directory on each worker's own disk. See docs/how-to/reconcile.md."
    return warn("outcome log", shown, advice)
