"""What is shown of receivers of messages: webhooks, and routes of alerts."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.tenancy.receivers import Receiver

from . import showing


def takes(row: Receiver) -> SafeString | str:
    """`arrive`; `paused 3 h ago: it accepted nothing for three days`; `not since 5 min ago`."""
    if row.paused_at:
        became = "paused" if row.is_silent else "switched off"
        because = row.get_paused_because_display()  # type: ignore[attr-defined]
        return format_html('<span class="qo-error">{} {}: {}</span>', became, showing.ago(row.paused_at), because)
    if row.failing_since:
        return format_html("none accepted since {}", showing.ago(row.failing_since))
    return "arrive"
