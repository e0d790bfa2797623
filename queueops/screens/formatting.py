"""How states, times and identifiers look in every list and page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

NOTHING = "-"
MAX_UNITS = 2
LATER = ("grey", "help")  # for a state that a later version has stored and this version does not know
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def badge(tone: str, sign: str, words: str) -> SafeString:
    """
    Return words with a sign and a tone: a colour alone would tell some people nothing.

    Args:
        tone: grey, blue, amber, green or red.
        sign: A Material symbol.
    """
    return format_html(
        '<span class="qo-state qo-tone-{}">'
        '<span class="material-symbols-outlined" aria-hidden="true">{}</span>{}</span>',
        tone,
        sign,
        words,
    )


def duration(given: timedelta | float) -> str:
    """Return at most two units: `3 min 5 s`, `2 d 4 h`; milliseconds below one second."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    left, parts = int(abs(seconds)), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
        if len(parts) == MAX_UNITS:
            break
    return ("-" if seconds < 0 else "") + " ".join(parts)


def ago(moment: datetime | None) -> SafeString | str:
    """Return `5 min ago` or `in 5 min`, with the exact time on hover."""
    if moment is None:
        return NOTHING
    seconds = (timezone.now() - moment).total_seconds()
    if abs(seconds) < 1:
        return _time(moment, "now")
    return _time(moment, f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}")


def ahead(moment: datetime | None) -> SafeString | str:
    """Return `in 5 min`; `now` once the moment has come, because a forecast is never in the past."""
    if moment is None:
        return NOTHING
    seconds = (moment - timezone.now()).total_seconds()
    return _time(moment, "now" if seconds < 1 else f"in {duration(seconds)}")


def age(moment: datetime) -> SafeString:
    return _time(moment, duration(max(1.0, (timezone.now() - moment).total_seconds())))


def short_id(identifier: UUID) -> SafeString:
    """Return the last part of a UUIDv7. Rows that were made together share the first part, the time."""
    return format_html('<code class="qo-id" title="{}">…{}</code>', identifier, str(identifier)[-8:])


def address(screen: str, identifier: object) -> str:
    """Return the address of one row's page: `address("jobs_job", id)`."""
    return reverse(f"admin:{screen}_change", args=[quote(str(identifier))])


def link(screen: str, identifier: object, text: object | None = None) -> SafeString:
    """Return a link to the page of one row."""
    shown = text or short_id(UUID(str(identifier)))
    return format_html('<a class="qo-link" href="{}">{}</a>', address(screen, identifier), shown)


def bar(percent: float, label: str = "") -> SafeString:
    words = label or f"{percent:.0f} %"
    return format_html(
        '<span class="qo-meter"><span class="qo-bar" role="progressbar" aria-label="{}" aria-valuemin="0"'
        ' aria-valuemax="100" aria-valuenow="{}"><span class="qo-bar-done" style="width:{}%"></span></span>'
        "<span>{}</span></span>",
        words,
        round(percent),
        round(percent, 1),
        words,
    )


def list_of(pairs: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """Return the pairs that have a value, in order."""
    return [(label, value) for label, value in pairs if value not in (None, "")]


def exact(moment: datetime) -> str:
    """Return a time to the second, with its zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _time(moment: datetime, words: str) -> SafeString:
    html = '<time class="qo-time" datetime="{}" title="{}">{}</time>'
    return format_html(html, moment.isoformat(), exact(moment), words)
