"""Bar charts of a user's usage by month and by day, drawn on the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from queueops.core.values.numbers import numbered
from ratelimits.money.reports import SpendGroup
from ratelimits.usage.reports import Day, Month

from .parts import amount

USED, OVER, RESERVED = "blue", "red", "amber"  # tones of admin.css
GAP = 0.14  # the part of a bar's slot that stays empty
DAYS_A_LABEL = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its parts from below, and the quota's height, all in percent of the tallest bar."""

    label: str
    title: str
    parts: Sequence[tuple[str, float]]
    quota: float | None = None


def chart_of_months(months: Sequence[Month], unit: str) -> dict[str, Any]:
    tallest = max((max(one.used + one.reserved, one.quota or 0) for one in months), default=0) or 1
    return _drawn(
        [
            Bar(
                label=one.month[5:],
                title=_of_month(one, unit),
                parts=_parts(
                    (USED, min(one.used, one.quota or 0)),
                    (OVER, max(0, one.used - (one.quota or 0))),
                    (RESERVED, one.reserved),
                    tallest=tallest,
                ),
                quota=None if one.quota is None else 100 * one.quota / tallest,
            )
            for one in months
        ],
        highest=f"the highest has {amount(max(one.used for one in months), unit)}",
    )


def chart_of_days(days: Sequence[Day], unit: str) -> dict[str, Any]:
    tallest = max((one.amount for one in days), default=0) or 1
    return _drawn(
        [
            Bar(
                label=str(one.day.day) if one.day.day == 1 or one.day.day % DAYS_A_LABEL == 0 else "",
                title=f"{one.day}: {amount(one.amount, unit)} in {numbered(one.events, 'event')}"
                + (f", {one.over:,} of them beyond the quota" if one.over else ""),
                parts=_parts((USED, one.amount - one.over), (OVER, one.over), tallest=tallest),
            )
            for one in days
        ],
        highest=f"the highest has {amount(max(one.amount for one in days), unit)}",
    )


def chart_of_spend(days: Sequence[SpendGroup], in_words: Callable[[int], str]) -> dict[str, Any]:
    """Return a chart of the days' spend. `in_words` turns an amount in micro-units into words."""
    tallest = max((one.sum.money for one in days), default=0) or 1
    return _drawn(
        [
            Bar(
                label=one.key[8:] if place % DAYS_A_LABEL == 0 else "",
                title=f"{one.key}: {in_words(one.sum.money)} for {numbered(one.sum.calls, 'call')}",
                parts=_parts((USED, one.sum.money), tallest=tallest),
            )
            for place, one in enumerate(days)
        ],
        highest=f"the highest has {in_words(max((one.sum.money for one in days), default=0))}",
    )


def _of_month(month: Month, unit: str) -> str:
    if month.quota is None:
        return f"{month.month}: nothing"
    reserved = f", {month.reserved:,} reserved" if month.reserved else ""
    return f"{month.month}: {month.used:,} of {amount(month.quota, unit)}{reserved}"


def _parts(*parts: tuple[str, int], tallest: int) -> list[tuple[str, float]]:
    return [(fill, 100 * count / tallest) for fill, count in parts if count > 0]


def _drawn(bars: Sequence[Bar], *, highest: str) -> dict[str, Any]:
    """Return the data for templates/admin/ratelimits/chart.html."""
    return {
        "width": len(bars),
        "highest": highest,
        "bars": [
            {
                "x": place,
                "wide": round(1 - GAP, 2),
                "label": bar.label,
                "title": bar.title,
                "parts": _stacked(bar.parts),
                "quota": None if bar.quota is None else round(100 - bar.quota, 2),
            }
            for place, bar in enumerate(bars)
        ],
    }


def _stacked(parts: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    base, found = 0.0, []
    for fill, height in parts:
        found.append({"fill": fill, "y": round(100 - base - height, 2), "height": round(height, 2)})
        base += height
    return found
