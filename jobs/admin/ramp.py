"""The ramp after a resume: how far it is, and holding, continuing and ending it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import column
from queueops.screens.forms import OptionalReasonForm
from queueops.screens.verbs import ReadOnlyMixin, Verb, VerbOutcome, on_one
from queueops.tenancy.people import name_of
from ratelimits.limits import ramps
from ratelimits.models import ResumeRamp

PERMISSION = "jobs.pause_work"


def _verb(act: Callable[..., str], **shown: Any) -> Verb:
    def carry_out(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
        return VerbOutcome(1, report=act(actor=actor, reason=reason))

    return Verb(permission=PERMISSION, done="changed", carry_out=carry_out, form=OptionalReasonForm, **shown)


def _hold(**told: str) -> str:
    return f"The ramp is held at {ramps.hold_ramp(**told).percent} %."


def _continue(**told: str) -> str:
    return f"The ramp grows on from {ramps.continue_ramp(**told).percent} %."


def _end(**told: str) -> str:
    ramps.end_ramp(**told)
    return "The ramp has ended: every limit is open."


HOLD = _verb(
    _hold,
    name="hold",
    label="Hold",
    explains="The share stays where it is, until somebody continues or ends the ramp.",
    icon="pause",
    applies=lambda rows: rows.filter(held_share=None),
    unfit="held before",
)
CONTINUE = _verb(
    _continue,
    name="continue",
    label="Continue",
    explains="The share grows on from where it stands, at the pace it had.",
    icon="trending_up",
    applies=lambda rows: rows.exclude(held_share=None),
    unfit="not held",
)
END = _verb(
    _end,
    name="end",
    label="End now",
    explains="Every limit is open at once; services without a limit use all slots.",
    icon="double_arrow",
    overrides=True,
)


@admin.register(ResumeRamp)
class ResumeRampAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("share", "state", "ends", "slots", "who")
    fields = readonly_fields = list_display
    actions_detail = ("hold", "go_on", "end")
    empty_title = "No ramp is on: every limit is open."
    empty_hint = "Resuming everything with a ramp opens the limits bit by bit."

    hold, go_on, end = on_one(HOLD), on_one(CONTINUE), on_one(END)

    def audit_targets(self, row: ResumeRamp) -> list[str]:
        return ["ramp"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ResumeRamp]:
        rows: QuerySet[ResumeRamp] = super().get_queryset(request)
        return rows if ramps.ramp_now() else rows.none()

    @admin.display(description="of every limit")
    def share(self, _: ResumeRamp) -> SafeString | str:
        shown = ramps.ramp_now()
        return formatting.bar(shown.percent, f"{shown.percent} %") if shown else formatting.NOTHING

    @admin.display(description="state")
    def state(self, row: ResumeRamp) -> SafeString:
        if row.held_share is not None:
            return formatting.badge("amber", "pause", "held")
        return formatting.badge("blue", "trending_up", "grows")

    @admin.display(description="all of it")
    def ends(self, _: ResumeRamp) -> SafeString | str:
        shown = ramps.ramp_now()
        return formatting.ago(shown.ends_at) if shown else formatting.NOTHING

    who = column("resumed by", lambda row: name_of(row.started_by))
