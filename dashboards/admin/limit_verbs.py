"""Actions of operators on limits and counters, besides editing figures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils import timezone
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from queueops.core.clock import database_moment
from queueops.core.values.ends import read_end
from queueops.screens.forms import OptionalReasonForm, ReasonForm
from queueops.screens.verbs import Verb, VerbOutcome
from ratelimits.limits import overrides
from ratelimits.limits.validation import figure
from ratelimits.models import Counter, LimitOverride
from ratelimits.tuning import limits, stated_caps, steer_counter

MAX_MINUTES_COOLED = steer_counter.MAX_COOL_DOWN_SECONDS // 60


class CoolDownForm(ReasonForm):
    seconds = forms.FloatField(
        label="Minutes",
        min_value=0,
        max_value=MAX_MINUTES_COOLED,
        initial=5,
        help_text="From now on. 0 ends a cool-down.",
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", "min": 0}),
    )
    field_order = ("seconds", "reason")

    def clean_seconds(self) -> float:
        return float(self.cleaned_data["seconds"]) * 60


class OverrideUntilForm(ReasonForm):
    capacity = forms.FloatField(
        label="Cap",
        min_value=0,
        help_text="In the limit's unit, as its capacity.",
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", "min": 0}),
    )
    refill_per_second = forms.FloatField(
        required=False,
        min_value=0.000001,
        help_text="Of a bucket. Empty: the limit's own.",
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", "min": 0}),
    )
    until = forms.CharField(
        help_text=f"06:00 (the next, in {settings.TIME_ZONE}), 2026-11-29 06:00, or how long: 90m, 2h, 1d.",
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
    )
    field_order = ("capacity", "refill_per_second", "until", "reason")

    def clean_until(self) -> datetime:
        try:
            end = read_end(self.cleaned_data["until"], now=database_moment(), zone=timezone.get_default_timezone())
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        if fault := overrides.fault_of_end(end):
            raise forms.ValidationError(fault)
        return end


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


def _override(
    ids: Sequence[str], *, actor: str, reason: str, capacity: float, until: datetime, refill_per_second: float | None
) -> VerbOutcome:
    told: tuple[str, ...] = ()
    for counter in Counter.objects.filter(pk__in=ids).order_by("pk"):
        told = overrides.set_override(
            counter.limit_id,
            counter.key,
            capacity=capacity,
            refill_per_second=refill_per_second,
            ends_at=until,
            actor=actor,
            reason=reason,
        ).warnings
    report = f"{figure(capacity)} until {until:%Y-%m-%d %H:%M %Z}, and then what it was before."
    return VerbOutcome(len(ids), report=" ".join([report, *told]))


def _end_override(ids: Sequence[str], *, actor: str, reason: str) -> VerbOutcome:
    rows = Counter.objects.filter(pk__in=ids).order_by("pk")
    ended = [overrides.end_override(row.limit_id, row.key, actor=actor, reason=reason) for row in rows]
    return VerbOutcome(sum(ended), len(ids) - sum(ended))


def _with_end(rows: Any) -> Any:
    own = LimitOverride.objects.filter(limit=OuterRef("limit"), key=OuterRef("key"), ends_at__isnull=False)
    return rows.filter(Exists(own))


DELETE = Verb(
    name="remove",
    permission="ratelimits.delete_limit",
    label="Delete",
    done="deleted",
    explains="Its overrides, counters and alerts go with it, and what it holds back may go at once. To try without it,"
    " switch it off or let it only watch.",
    icon="delete",
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
    unfit="without a proposal",
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
    unfit="without a proposal",
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
    carry_out=_cool_down,
    form=CoolDownForm,
)
OVERRIDE = Verb(
    name="override",
    permission="ratelimits.change_limit",
    label="Other cap until",
    done="given another cap",
    explains="Of this key alone, and until then: afterwards it has again what it has now, on time also through a"
    " restart. Where more is used than holds then, you are told a quarter of an hour before.",
    icon="timer",
    carry_out=_override,
    form=OverrideUntilForm,
)
END_OVERRIDE = Verb(
    name="end-override",
    permission="ratelimits.change_limit",
    label="End the other cap",
    done="given back the cap from before",
    explains="What holds otherwise holds from now on.",
    icon="timer_off",
    applies=_with_end,
    unfit="without another cap",
    carry_out=_end_override,
    form=ReasonForm,
)
