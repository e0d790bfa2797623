"""How a user's month and its figures look in every list and page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from queueops.screens import formatting
from ratelimits.models import Allowance, AllowanceOverride, UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.models import LEVELS, NEAR, PASSED
from ratelimits.usage.month_end import MONTH

UNITS = "units"  # the unit to show for a project whose allowance was deleted
NOTICE, WARNING, WHOLE = LEVELS


def is_month(text: str) -> bool:
    return MONTH.match(text) is not None


def units_of(project_ids: Iterable[str]) -> dict[str, str]:
    """The unit in which each project's allowance counts, `requests` or `tokens`, by project."""
    wanted = set(project_ids)
    known = dict(Allowance.objects.filter(pk__in=wanted).values_list("pk", "unit"))
    return {project_id: known.get(project_id, UNITS) for project_id in wanted}


def tell_units(rows: Sequence[AllowanceOverride | UsageTracking | UsageReservation | UsageEvent]) -> None:
    units = units_of(row.project_id for row in rows)
    for row in rows:
        row.unit = units[row.project_id]


def remaining_of(row: UsageTracking) -> int:
    return max(0, row.quota - row.used - row.reserved)


def amount(count: int, unit: str) -> str:
    """`1,200 tokens`; `1 request`."""
    return f"{count:,} {unit.removesuffix('s') if abs(count) == 1 else unit}"


def percent_of(row: UsageTracking) -> int:
    """The used part of the quota, rounded down as the level is: 80 % is not shown before it is reached."""
    if row.quota:
        return 100 * row.used // row.quota
    return WHOLE if row.used else 0


def usage_bar(row: UsageTracking, unit: str) -> SafeString:
    """A bar of the used part of the quota and the reserved part of the rest, with marks at the levels of alerts."""
    used = min(1.0, row.used / row.quota) if row.quota else float(row.used > 0)
    held = min(1.0 - used, row.reserved / row.quota if row.quota else 0.0)
    return format_html(
        '<span class="qo-meter"><span class="qo-gauge qo-gauge-two qo-gauge-{}" role="meter"'
        ' style="--qo-notice:{}%;--qo-warning:{}%" aria-label="{}" aria-valuemin="0" aria-valuemax="{}"'
        ' aria-valuenow="{}" aria-valuetext="{}"><span class="qo-bar-done" style="width:{}%"></span>'
        '<span class="qo-bar-held" style="width:{}%"></span></span>'
        '<span><span class="qo-number">{}</span> of {} <span class="qo-muted">{}</span></span></span>',
        "full" if row.level >= WHOLE else "high" if row.level >= NEAR else "low",
        NOTICE,
        WARNING,
        f"{row.project_id} {row.user_id} {row.month_year}",
        row.quota,
        row.used,
        f"{amount(row.used, unit)} used, {row.reserved:,} reserved, of {row.quota:,}",
        round(WHOLE * used, 1),
        round(WHOLE * held, 1),
        f"{row.used:,}",
        amount(row.quota, unit),
        f"{percent_of(row)} %",
    )


def usage_marks(row: UsageTracking, unit: str) -> SafeString:
    """Badges for what is unusual about a month: near the quota, all of it used, or beyond it."""
    found = []
    if row.level == PASSED:
        found.append(formatting.badge("red", "error", f"over by {amount(row.overage, unit)}"))
    elif row.level == WHOLE:
        found.append(formatting.badge("red", "block", "all used"))
    elif row.level >= NEAR:
        found.append(formatting.badge("amber", "warning", "near the quota"))
    return format_html_join(" ", "{}", ((one,) for one in found))


def event_marks(event: UsageEvent) -> SafeString:
    """Badges for what is unusual about an event: it came when the quota was used up, or a person made it."""
    found = []
    if event.over_limit:
        found.append(formatting.badge("red", "error", "over the limit"))
    if event.correction:
        found.append(formatting.badge("blue", "edit_note", "correction"))
    return format_html_join(" ", "{}", ((one,) for one in found))


def month_link(one: UsageEvent | UsageReservation) -> SafeString:
    """The user and month in which an event or reservation counts, with a link to all months of that user."""
    address = narrowed("ratelimits_usagetracking", q=one.user_id)
    return format_html(
        '<a class="qo-link" href="{}">{}</a> <span class="qo-muted">{}</span>',
        address,
        formatting.short_id(one.user_id),
        one.month_year,
    )


def narrowed(screen: str, **filters: object) -> str:
    """The address of a filtered list: `narrowed("ratelimits_usageevent", project="acme")`."""
    query = urlencode({name: str(value) for name, value in filters.items()})
    return f"{reverse(f'admin:{screen}_changelist')}?{query}"
