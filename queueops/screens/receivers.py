"""The columns and actions of screens for receivers of messages: webhooks and routes of alerts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.core.values.numbers import numbered

from . import formatting
from .forms import OptionalReasonForm
from .verbs import Verb, VerbOutcome


class HowManyForm(OptionalReasonForm):
    """Says before the action is confirmed how many messages it concerns, and since when."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for row in self.rows:
            words, first_at = self.told_of(row)
            since = f", the first at {first_at:%Y-%m-%d %H:%M} UTC" if first_at else ""
            self.fields["reason"].help_text = f"{words}{since}. A reason is optional; it is kept in the audit trail."

    def told_of(self, row: Any) -> tuple[str, datetime | None]:
        """Return `12 messages failed`, and when the first of them failed."""
        raise NotImplementedError


def send_again_verb(
    *, permission: str, explains: str, carry_out: Callable[..., VerbOutcome], form: type[HowManyForm]
) -> Verb:
    """Return the action on a receiver's page that sends again the messages that the receiver did not accept."""
    return Verb(
        name="send_again",
        permission=permission,
        label="Send again",
        done="sent again what it did not accept",
        explains=explains,
        icon="redo",
        applies=lambda rows: rows.filter(enabled=True),
        unfit="switched off",
        carry_out=carry_out,
        form=form,
    )


def sent_again(sent: int, *, left: int) -> VerbOutcome:
    more = f" {left:,} are left: send again once more." if left else ""
    report = f"{numbered(sent, 'message')} sent again; it is not paused any more.{more}"
    return VerbOutcome(sent, left, report=report)


def takes(row: Any) -> SafeString | str:
    """
    Return a receiver's state: `arrive`; `paused 3 h ago: it accepted nothing for three days`; `none accepted since …`.
    """
    if row.paused_at:
        became = "paused" if row.is_silent else "switched off"
        because = row.get_paused_because_display()
        return format_html('<span class="qo-error">{} {}: {}</span>', became, formatting.ago(row.paused_at), because)
    if row.failing_since:
        return format_html("none accepted since {}", formatting.ago(row.failing_since))
    return "arrive"
