"""The doctor's questions about what workers and their house-keeping keep up to date."""

import time
from datetime import UTC, datetime, timedelta

from django.apps import apps
from django.conf import settings
from django.db.models import CharField, F, Func, Value

from jobs.cluster import ALLOWED_TASKS
from jobs.features.results.garbage_collect import ForeignStore, ensure_own_store
from jobs.handlers.registry import served_names
from jobs.models import BatchPolicy, MaintenanceWindow, Objective, PauseSwitch, ResultStoreTotals
from jobs.services.upkeep.nobody import nobody_works
from jobs.services.upkeep.retention import find_overdue, is_archived
from queueops.audit import stream
from queueops.core.clock import Now, with_clocks
from queueops.core.postgres.zones import known_zone
from queueops.core.stores.choose import store_at
from queueops.core.stores.store import StoreError
from ratelimits.limits.defaults import unheeded_settings
from ratelimits.models import Allowance, Budget, Limit

from .finding import DoctorFinding, DoctorVerdict, fail, ok, scalar, warn

LATE_SUMS_SECONDS = 60.0
LATE_STREAM_SECONDS = 300.0  # a run comes each minute, and may wait for a long transaction
RECENT_FAILURE_SECONDS = 3600.0
MAX_TASKS_NAMED = 5
LATE_SWEEP_SECONDS = 6 * 3600.0  # a sweep comes each hour, and a large store takes long


def examine_executors() -> DoctorFinding:
    if scalar("SELECT to_regclass('jobs_executor')") is None:
        return warn("executors", "no tables yet", "Run manage.py migrate.")
    alive = scalar(
        with_clocks("SELECT count(*) FROM jobs_executor WHERE heartbeat_at > {{now}} - make_interval(secs => %s)"),
        settings.QUEUEOPS.lease_seconds,
    )
    if not alive:
        if nobody := nobody_works():
            advice = "Start workers: manage.py up, or manage.py qcluster. See docs/runbooks/no_executor.md."
            return fail("executors", nobody.words, advice)
        return warn("executors", "none alive", "Start workers: manage.py up, or manage.py qcluster.")
    return ok("executors", f"{alive} alive")


def examine_sums() -> DoctorFinding:
    """Check that the sums behind charts and metrics follow the job log."""
    if scalar("SELECT to_regclass('jobs_flowcursor')") is None:
        return warn("sums", "no table yet", "Run manage.py migrate.")
    behind = scalar(
        with_clocks(
            "SELECT extract(epoch FROM {{now}} - min(marked_at))::float8 FROM jobs_flowcursor WHERE counted < mark"
        )
    )
    if not isinstance(behind, float) or behind <= LATE_SUMS_SECONDS:
        return ok("sums", "charts and metrics follow the job log")
    return warn(
        "sums",
        f"charts and metrics are {behind:.0f} s behind the job log",
        "Start workers; if they run, look for a transaction that stays open: "
        "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;",
    )


def examine_retention() -> DoctorFinding:
    """Look for rows that should have been deleted long since."""
    if scalar("SELECT to_regclass('jobs_executor')") is None:
        return warn("retention", "no tables yet", "Run manage.py migrate.")
    overdue = find_overdue()
    if not overdue:
        return ok("retention", "nothing is kept for longer than it should be")
    return warn(
        "retention",
        "; ".join(f"{late.name}: kept {late.days} days, the oldest is of {late.since:%Y-%m-%d}" for late in overdue),
        "Start workers, whose house-keeping deletes; if they run, look at the failed tasks in the admin."
        + " Jobs, batches and days of the log go with manage.py archive alone: run it." * is_archived(),
    )


def examine_tasks() -> DoctorFinding:
    """Look for tasks that workers refused lately, such as a duty of another version."""
    if scalar("SELECT to_regclass('django_q_task')") is None:
        return warn("tasks", "no table yet", "Run manage.py migrate.")
    lately = Now() - timedelta(seconds=RECENT_FAILURE_SECONDS)
    failed = apps.get_model("django_q", "Task").objects.filter(success=False, stopped__gt=lately)
    refused = failed.exclude(func__in=ALLOWED_TASKS).order_by("func").values_list("func", flat=True).distinct()
    names = list(refused[: MAX_TASKS_NAMED + 1])
    if not names:
        return ok("tasks", "workers refused none in the last hour")
    more = " and others" * (len(names) > MAX_TASKS_NAMED)
    return warn(
        "tasks",
        f"workers refused {', '.join(names[:MAX_TASKS_NAMED])}{more} in the last hour: not of this version",
        "A later version's duty waits for its workers: finish the upgrade. After a way back delete its schedule in the "
        "admin, under Schedules; nobody else's should be there.",
    )


def examine_kinds() -> DoctorFinding:
    """Look for rules that name a kind by a former name: they do not apply to jobs that are submitted now."""
    if scalar("SELECT to_regclass('jobs_objective')") is None:
        return warn("kinds", "no tables yet", "Run manage.py migrate.")
    former = {name: kind for name, kind in served_names().items() if name != kind}
    named = [
        *Limit.objects.filter(kind__in=former).values_list(Value("limit"), "name", "kind"),
        *PauseSwitch.objects.filter(scope="kind", key__in=former).values_list(Value("pause"), "key", "key"),
        *MaintenanceWindow.objects.filter(scope="kind", key__in=former, next_change_at__isnull=False).values_list(
            Value("window"), "key", "key"
        ),
        *Objective.objects.filter(kind__in=former).values_list(Value("objective"), "name", "kind"),
        *BatchPolicy.objects.filter(kind__in=former).values_list(Value("way by batch"), "kind", "kind"),
    ]
    if not named:
        return ok("kinds", "nothing goes by a former name of a kind")
    return warn(
        "kinds",
        "; ".join(f"{what} {name}: {kind} is {former[kind]} now" for what, name, kind in named),
        "They are nothing to jobs that are submitted now: give each the new name.",
    )


def examine_caps() -> DoctorFinding:
    """Look for caps that the environment sets and no limit has."""
    if scalar("SELECT to_regclass('ratelimits_limit')") is None:
        return warn("caps", "no tables yet", "Run manage.py migrate.")
    if not (unheeded := unheeded_settings()):
        return ok("caps", "limits are what the environment says, where it says something")
    return warn(
        "caps",
        "; ".join(unheeded),
        "A restart changes no limit. Run the command, or change the limit in the admin and take the variable away.",
    )


def examine_zones() -> DoctorFinding:
    """Look for zones of budgets and allowances that the database does not know, and of limits that Python does not."""
    if scalar("SELECT to_regproc('ratelimits_known_zone')") is None:
        return warn("zones", "no tables yet", "Run manage.py migrate.")
    known = Func(F("time_zone"), function="ratelimits_known_zone", output_field=CharField())
    budgets = (
        Budget.objects.alias(known=known)
        .filter(known__isnull=True)
        .exclude(period=Budget.Period.TOTAL)
        .values_list("name", "project", "time_zone")
    )
    allowances = Allowance.objects.alias(known=known).filter(known__isnull=True).values_list("project", "time_zone")
    found = [f"budget {name} of {project}: {zone}" for name, project, zone in budgets]
    found += [f"the allowance of {project}: {zone}" for project, zone in allowances]
    resets = Limit.objects.filter(enabled=True).exclude(reset_zone="").values_list("name", "reset_zone")
    found += [f"limit {name}: {zone}" for name, zone in resets if known_zone(zone) is None]
    if not found:
        return ok("zones", "those of budgets, allowances and limits are known")
    return fail(
        "zones",
        "; ".join(found),
        "The database does not know these time zones, or this host does not know a limit's. Calls that such a budget "
        "pays for wait: delete it, and make it with another zone. Months of such an allowance begin in UTC: give it "
        "another zone. Such a limit's calls wait: give it another zone, or install the system's zones and restart.",
    )


def examine_audit_stream() -> DoctorFinding:
    target = settings.QUEUEOPS.audit_stream
    if not target:
        return ok("audit stream", "none is set; the trail stays here")
    if scalar("SELECT to_regclass('audit_auditstream')") is None:
        return warn("audit stream", "no table yet", "Run manage.py migrate.")
    lag = stream.lag_of(target)
    behind = f"{target}: {lag.entries:,} entries behind, the oldest for {lag.seconds / 60:.0f} min"
    if lag.fault or lag.seconds > LATE_STREAM_SECONDS:
        advice = "Nothing is lost: they are sent when it answers. See docs/how-to/stream-the-audit-trail.md."
        return warn("audit stream", f"{behind}; {lag.fault or 'not sent'}", advice)
    return ok("audit stream", behind if lag.entries else f"{target} has everything")


def examine_results() -> DoctorFinding:
    """Check the result store: whether it can be written, how long that takes, and whether it is swept."""
    place = settings.QUEUEOPS.result_store
    if scalar("SELECT to_regclass('jobs_resultstoretotals')") is None:
        return warn("results", "no table yet", "Run manage.py migrate.")
    totals = ResultStoreTotals.objects.first() or ResultStoreTotals()
    if not place:
        if not totals.stored:
            return ok("results", "all are in the database")
        observed = "QUEUEOPS_RESULT_STORE is not set here, and was"
        return fail("results", observed, "Set it on every host: results are there.")
    begun = time.monotonic()
    try:
        store = store_at(place)
        store.check(writing=True)
        ensure_own_store(store, mark=False)
    except ForeignStore as error:
        advice = "See docs/how-to/large-results.md, 'A copy of the database'."
        return warn("results", str(error), advice)
    except (StoreError, OSError) as error:
        advice = "New results stay in the database, and those too large for it fail. See docs/how-to/large-results.md."
        return fail("results", str(error), advice)
    observed = f"{store} takes a file in {(time.monotonic() - begun) * 1000:.0f} ms; {totals.stored:,} stored"
    late = _late_in_store(totals)
    return DoctorFinding("results", DoctorVerdict.WARN if late[0] else DoctorVerdict.OK, observed + late[0], late[1])


def _late_in_store(totals: ResultStoreTotals) -> tuple[str, str]:
    """Say what is wrong with a result store although it responds, and what to do; two empty texts: nothing is wrong."""
    now = datetime.now(UTC)
    if totals.failed_at and (now - totals.failed_at).total_seconds() < RECENT_FAILURE_SECONDS:
        said = f"; it failed at {totals.failed_at:%H:%M} UTC: {totals.failure}"
        return said, "Results stayed in the database meanwhile, and those too large for it failed their jobs."
    if totals.swept_at and (now - totals.swept_at).total_seconds() > LATE_SWEEP_SECONDS:
        return f"; last swept at {totals.swept_at:%Y-%m-%d %H:%M} UTC", "Start workers, whose house-keeping sweeps it."
    return "", ""
