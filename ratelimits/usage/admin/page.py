"""The page of one user's month."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django.urls import reverse
from django.utils.safestring import SafeString

from queueops.core.postgres.zones import known_zone, zone_of
from queueops.screens import formatting
from queueops.screens.formatting import list_of
from queueops.tenancy.user_labels import users_shown
from ratelimits.models import Allowance, AllowanceOverride, QuotaAlert, UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.allowance_alerts import OF_ALLOWANCES
from ratelimits.usage.month_end import month_end
from ratelimits.usage.reports import MAX_USES_SUMMED, Days, Month, days_of_month, months_of_user

from .charts import chart_of_days, chart_of_months
from .parts import amount, event_marks, narrowed, remaining_of, units_of, usage_bar, usage_marks
from .verbs import CANCEL

MAX_USES_SHOWN = 20
MAX_RESERVATIONS = 10


def page_of(row: UsageTracking, person: Any) -> dict[str, Any]:
    allowance = Allowance.objects.filter(pk=row.project_id).first()
    unit = units_of([row.project_id])[row.project_id]
    zone = zone_of(allowance.time_zone if allowance else "UTC")
    of_user = {"project": row.project_id, "user_id": row.user_id, "month": row.month_year}
    months = months_of_user(row.project_id, row.user_id, until=row.month_year)
    days = days_of_month(row.project_id, row.user_id, row.month_year, zone)
    return {
        "title": f"Usage of {row.user_id}",
        "subtitle": f"{row.month_year}, {row.project_id}",
        "row": row,
        "unit": unit,
        "gauge": usage_bar(row, unit),
        "marks": usage_marks(row, unit),
        "tiles": _tiles(row),
        "facts": _facts(row, allowance, unit, zone),
        "months": chart_of_months(months, unit),
        "months_span": f"{months[0].month} to {months[-1].month}",
        "months_say": f"Used by month, in {unit}",
        "months_table": [_month_line(one, unit) for one in reversed(months) if one.quota is not None],
        "days": chart_of_days(days.days, unit) if any(day.events for day in days.days) else None,
        "days_say": f"Used by day of {row.month_year}, in {unit}",
        "days_note": _note(days, zone),
        "reservations": _reservations(row, unit, person),
        "reservations_href": narrowed("ratelimits_usagereservation", **of_user),
        "events": _events(row, unit),
        "events_href": narrowed("ratelimits_usageevent", **of_user),
        "alerts": _alerts(row),
    }


def _tiles(row: UsageTracking) -> list[tuple[str, str]]:
    figures = (("Used", row.used), ("Reserved", row.reserved), ("Remaining", remaining_of(row)), ("Over", row.overage))
    return [(label, f"{count:,}") for label, count in figures]


def _lost_zone(allowance: Allowance | None) -> str:
    if allowance is None or known_zone(allowance.time_zone):
        return ""
    return f": this host does not know the time zone {allowance.time_zone}. Give the allowance another"


def _facts(row: UsageTracking, allowance: Allowance | None, unit: str, zone: ZoneInfo) -> list[tuple[str, object]]:
    own = AllowanceOverride.objects.filter(project_id=row.project_id, user_id=row.user_id).first()
    if own:
        words = f", this user's own; others have {allowance.quota:,}" if allowance else ", this user's own"
    else:
        words = ", as for everybody"
    return list_of(
        (
            ("Project", _project(row, allowance)),
            ("User", users_shown(row.project_id, [row.user_id])[row.user_id]),
            ("Month", f"{row.month_year}, in {zone.key}{_lost_zone(allowance)}"),
            ("Quota", f"{amount(row.quota, unit)}{words}"),
            ("Why another quota", own.note if own else None),
            ("At the quota", allowance.get_policy_display() if allowance else None),
            ("Begins anew", formatting.ago(month_end(row.month_year, zone.key))),
            ("Reservations refused", f"{row.refused:,}" if row.refused else None),
            ("Reservations that expired", f"{row.expired:,}" if row.expired else None),
            ("People were told of", f"{row.alerted_level} %" if row.alerted_level else None),
        )
    )


def _project(row: UsageTracking, allowance: Allowance | None) -> SafeString | str:
    return formatting.link("ratelimits_allowance", row.project_id, row.project_id) if allowance else row.project_id


def _month_line(month: Month, unit: str) -> dict[str, str]:
    return {
        "month": month.month,
        "used": amount(month.used, unit),
        "quota": f"{month.quota:,}",
        "percent": f"{100 * month.used // month.quota} %" if month.quota else formatting.NOTHING,
    }


def _note(days: Days, zone: ZoneInfo) -> str:
    found = [f"Days as in {zone.key}."]
    if days.corrected:
        found.append(f"Corrections, {days.corrected:+,} in all, are of no day.")
    if days.partial:
        found.append(f"Of the newest {MAX_USES_SUMMED:,} events only: there were too many to sum up.")
    return " ".join(found)


def _reservations(row: UsageTracking, unit: str, person: Any) -> list[dict[str, object]]:
    """The reservations that hold something now, the first to expire first."""
    held = UsageReservation.objects.filter(
        status=UsageReservation.Status.ACTIVE,
        project_id=row.project_id,
        user_id=row.user_id,
        month_year=row.month_year,
    ).order_by("expires_at")[:MAX_RESERVATIONS]
    may_cancel = person.has_perm(CANCEL.permission)
    return [
        {
            "id": formatting.link("ratelimits_usagereservation", one.pk),
            "amount": amount(one.amount, unit),
            "made": formatting.ago(one.created_at),
            "expires": formatting.ago(one.expires_at),
            "cancel": reverse("admin:ratelimits_usagereservation_cancel", args=[one.pk]) if may_cancel else "",
        }
        for one in held
    ]


def _events(row: UsageTracking, unit: str) -> list[dict[str, object]]:
    newest = UsageEvent.objects.filter(project_id=row.project_id, user_id=row.user_id, month_year=row.month_year)
    return [
        {
            "id": formatting.link("ratelimits_usageevent", one.pk, formatting.short_id(one.event_id)),
            "when": formatting.ago(one.occurred_at),
            "amount": f"{one.amount:+,} {unit}" if one.correction else amount(one.amount, unit),
            "tokens": f"{one.tokens:,}",
            "service": one.service or formatting.NOTHING,
            "marks": event_marks(one),
        }
        for one in newest.order_by("-pk")[:MAX_USES_SHOWN]
    ]


def _alerts(row: UsageTracking) -> list[dict[str, object]]:
    subject = f"{row.month_year}/{row.project_id}/{row.user_id}"
    found = QuotaAlert.objects.filter(kind__in=OF_ALLOWANCES, subject=subject, resolved_at=None).order_by("-pk")
    return [
        {
            "message": formatting.link("ratelimits_quotaalert", one.pk, one.message),
            "since": formatting.ago(one.opened_at),
            "acknowledged": one.acknowledged_at is not None,
        }
        for one in found
    ]
