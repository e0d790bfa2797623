"""What people do to limits and counters besides editing figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.urls import reverse
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from queueops.screens.forms import OptionalReasonForm, ReasonForm
from queueops.screens.verbs import Verb, VerbOutcome
from ratelimits.services.tuning import limits, stated_caps, steer_counter

MOST_MINUTES_COOLED = steer_counter.LONGEST_COOL_DOWN_SECONDS // 60


class CoolDownForm(ReasonForm):
    seconds = forms.FloatField(
        label="Minutes",
        min_value=0,
        max_value=MOST_MINUTES_COOLED,
        initial=5,
        help_text="From now on. 0 ends a cool-down.",
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", "min": 0}),
    )
    field_order = ("seconds", "reason")

    def clean_seconds(self) -> float:
        return float(self.cleaned_data["seconds"]) * 60


def _delete(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    for limit_id in sorted(ids):
        limits.delete_limit(limit_id, actor=actor, reason=reason)
    return VerbOutcome(len(ids), report=f"{len(ids):,} deleted.", goes_to=reverse("admin:ratelimits_limit_changelist"))


def _accept(ids: Sequence[str], *, actor: str, reason: str) -> VerbOutcome:
    saved = [stated_caps.accept_proposal(counter_id, actor=actor, reason=reason) for counter_id in sorted(ids)]
    warnings = " ".join(warning for one in saved for warning in one.warnings)
    return VerbOutcome(len(saved), report=f"The provider's cap holds from now on. {warnings}".strip())


def _decline(ids: Sequence[str], *, actor: str, reason: str) -> VerbOutcome:
    for counter_id in sorted(ids):
        stated_caps.decline_proposal(counter_id, actor=actor, reason=reason)
    return VerbOutcome(len(ids), report="The cap stays as it is.")


def _clear(ids: Sequence[str], *, actor: str, reason: str) -> VerbOutcome:
    for counter_id in sorted(ids):
        steer_counter.clear_counter(counter_id, actor=actor, reason=reason)
    return VerbOutcome(len(ids))


def _cool_down(ids: Sequence[str], *, actor: str, reason: str, seconds: float) -> VerbOutcome:
    for counter_id in sorted(ids):
        steer_counter.cool_down_counter(counter_id, seconds, actor=actor, reason=reason)
    if not seconds:
        return VerbOutcome(len(ids), report=f"{len(ids):,} may let calls go again.")
    return VerbOutcome(len(ids))


def _all(rows: Any) -> Any:
    return rows


DELETE = Verb(
    name="remove",
    permission="ratelimits.delete_limit",
    label="Delete",
    done="deleted",
    explains="Its overrides, counters and alerts go with it, and what it holds back may go at once. To try without it,"
    " switch it off or let it only watch.",
    icon="delete",
    applies=_all,
    carry_out=_delete,
    form=ReasonForm,
    overrides=True,
)
ACCEPT = Verb(
    name="accept",
    permission="ratelimits.change_limit",
    label="Accept the provider's cap",
    done="changed",
    explains="The cap that the provider stated for this key becomes the key's own, and other keys keep theirs: as the"
    " window's cap, or as the bucket that keeps it. It holds within a second.",
    icon="check",
    applies=lambda rows: rows.filter(proposed_capacity__isnull=False),
    carry_out=_accept,
    form=OptionalReasonForm,
)
DECLINE = Verb(
    name="decline",
    permission="ratelimits.change_limit",
    label="Decline it",
    done="left as it is",
    explains="The cap stays. Should the provider state another again, it is proposed again.",
    icon="close",
    applies=lambda rows: rows.filter(proposed_capacity__isnull=False),
    carry_out=_decline,
    form=ReasonForm,
)
CLEAR = Verb(
    name="clear",
    permission="ratelimits.steer_counter",
    label="Clear",
    done="cleared",
    explains="It begins anew: nothing used, not cooled down, not slowed. Unless the provider has begun anew too, calls"
    " may be refused that would have waited.",
    icon="restart_alt",
    applies=_all,
    carry_out=_clear,
    form=ReasonForm,
    overrides=True,
)
COOL_DOWN = Verb(
    name="cool-down",
    permission="ratelimits.steer_counter",
    label="Cool down",
    done="cooled down",
    explains="Nothing that it counts goes until then; work waits and spends no attempts. Calls in flight go on.",
    icon="ac_unit",
    applies=_all,
    carry_out=_cool_down,
    form=CoolDownForm,
)
LIMIT_VERBS = (DELETE,)
COUNTER_VERBS = (CLEAR, COOL_DOWN, ACCEPT, DECLINE)
