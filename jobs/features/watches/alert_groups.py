"""
Groups alerts that are sent as one message: alerts of one cause that open within a minute, in any number of projects.

Alerts say in their figures what their cause is. The first alert of a cause waits for more while any other project has
unfinished work, which could meet the same cause. Without such work it is sent at once. When a project has more than a
few causes of dead letters, the further ones share one message. Otherwise one bad release would send hundreds of
messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from django.db.models import F, Sum

from jobs.models import WHOLE_PROJECT, JobCount, PauseSwitch
from jobs.states import UNFINISHED
from queueops.core.clock import Now, database_now
from queueops.tenancy.moves import projects_away
from ratelimits.models import QuotaAlert

TOGETHER = timedelta(seconds=60)  # after the first alert of a cause opened
MAX_CAUSES_APART = 5  # messages about a project's dead letters in CAUSES_WAIT; later causes wait and share one message
CAUSES_WAIT = timedelta(minutes=10)

Group = list[QuotaAlert]


def told_now(alerts: Iterable[QuotaAlert]) -> list[Group]:
    """
    Group unsent alerts by message, the oldest first; groups that still wait for more alerts are left out.

    An alert that is over or names no cause is a group of its own.
    """
    by_cause: dict[object, Group] = defaultdict(list)
    for alert in alerts:
        cause = None if alert.resolved_at else alert.figures.get("cause")
        by_cause[(alert.kind, alert.severity, cause) if cause else alert.pk].append(alert)
    groups = list(by_cause.values())
    now = datetime.fromtimestamp(database_now(), UTC)
    young = [group for group in groups if _has_cause(group) and now - group[0].opened_at < TOGETHER]
    if young:
        working = _projects_with_work()
        waiting = [group for group in young if working - {name for one in group for name in one.projects}]
        groups = [group for group in groups if group not in waiting]
    return _few_a_project(groups, now)


def _has_cause(group: Group) -> bool:
    return group[0].resolved_at is None and "cause" in group[0].figures


def _projects_with_work() -> set[str]:
    total = sum((F(state) for state in sorted(UNFINISHED)[1:]), start=F(min(UNFINISHED)))
    counts = JobCount.objects.filter(batch_id=WHOLE_PROJECT).exclude(project_id=PauseSwitch.EXEMPT)
    rows = counts.values("project_id").annotate(total=Sum(total)).filter(total__gt=0).order_by()
    return set(rows.values_list("project_id", flat=True)) - projects_away()


def _few_a_project(groups: Sequence[Group], now: datetime) -> list[Group]:
    of_letters = [group for group in groups if group[0].kind == QuotaAlert.Kind.DEAD_LETTERS and _has_cause(group)]
    if not of_letters:
        return list(groups)
    told = Counter(
        name
        for alert in QuotaAlert.objects.filter(
            kind=QuotaAlert.Kind.DEAD_LETTERS, told_with=None, notified_at__gt=Now() - CAUSES_WAIT, resolved_at=None
        )
        for name in alert.projects
    )
    late: dict[str, Group] = defaultdict(list)
    for group in of_letters:
        name = min(group[0].projects, default="")
        if told[name] < MAX_CAUSES_APART:
            told[name] += 1
        else:
            late[name] += group
    held_back = {alert.pk for group in late.values() for alert in group}
    kept = [group for group in groups if group[0].pk not in held_back]
    return kept + [group for group in late.values() if now - group[0].opened_at >= CAUSES_WAIT]
