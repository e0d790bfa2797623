"""Verbs on the months, quotas and reservations of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextareaWidget

from queueops.screens.forms import OptionalReasonForm, ReasonForm
from queueops.screens.verbs import Verb, VerbOutcome
from ratelimits.models import AllowanceOverride, UsageReservation, UsageTracking
from ratelimits.usage import allowances, release
from ratelimits.usage.models import MAX_QUOTA

from .parts import units_of

MAX_NOTE_LENGTH = 2000


class QuotaForm(OptionalReasonForm):
    """Asks for another quota for one user, whose month is the only item of `rows`."""

    quota = forms.IntegerField(
        min_value=0,
        max_value=MAX_QUOTA,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="For the current month and every later one. What was used stays used.",
    )
    note = forms.CharField(
        required=False,
        max_length=MAX_NOTE_LENGTH,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        help_text="Optional; stays with the quota, for whoever looks later.",
    )
    field_order = ("quota", "note", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for row in self.rows:
            own = AllowanceOverride.objects.filter(project_id=row.project_id, user_id=row.user_id).first()
            self.fields["quota"].initial = own.quota if own else row.quota
            self.fields["note"].initial = own.note if own else ""
            unit = units_of([row.project_id])[row.project_id]
            self.fields["quota"].label = f"Quota, in {unit} a month"


def _set_quota(ids: Sequence[int], *, actor: str, reason: str, quota: int, note: str) -> VerbOutcome:
    rows = list(UsageTracking.objects.filter(pk__in=ids).order_by("pk"))
    for row in rows:
        allowances.set_override(row.project_id, row.user_id, quota=quota, note=note, actor=actor, reason=reason)
    return VerbOutcome(len(rows), report=f"The user's quota is {quota:,} a month now.")


def _remove_quota(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    rows = list(UsageTracking.objects.filter(pk__in=ids))
    removed = sum(allowances.remove_override(row.project_id, row.user_id, actor=actor, reason=reason) for row in rows)
    return VerbOutcome(removed, len(rows) - removed)


def _cancel(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    rows = UsageReservation.objects.filter(pk__in=ids)
    ended = [release.cancel(one.pk, project_id=one.project_id, actor=actor, reason=reason) for one in rows]
    released = sum(one.released for one in ended)
    return VerbOutcome(released, len(ids) - released)


def _has_own_quota(rows: Any) -> Any:
    own = [
        row.pk
        for row in rows
        if AllowanceOverride.objects.filter(project_id=row.project_id, user_id=row.user_id).exists()
    ]
    return rows.filter(pk__in=own)


SET_QUOTA = Verb(
    name="set-quota",
    permission="ratelimits.change_allowanceoverride",
    label="Set this user's quota",
    done="given a quota of its own",
    explains="This user's quota of the current month and every later one; everybody else keeps the allowance's. A"
    " quota below what is used already lets nothing more be reserved and gives nothing back.",
    icon="tune",
    carry_out=_set_quota,
    form=QuotaForm,
)
REMOVE_QUOTA = Verb(
    name="remove-quota",
    permission="ratelimits.delete_allowanceoverride",
    label="Back to everybody's quota",
    done="back to everybody's quota",
    explains="The user has the quota of the project's allowance again, also in the current month.",
    icon="undo",
    applies=_has_own_quota,
    unfit="without a quota of their own",
    carry_out=_remove_quota,
    form=ReasonForm,
)
CANCEL = Verb(
    name="cancel",
    permission="ratelimits.cancel_reservation",
    label="Cancel",
    done="cancelled",
    explains="What is reserved is free again at once. Should the call have been made, its event still counts when it"
    " comes, as one without a reservation. Reservations that have ended are left alone.",
    icon="block",
    applies=lambda rows: rows.filter(status=UsageReservation.Status.ACTIVE),
    unfit="not active any more",
    carry_out=_cancel,
    form=ReasonForm,
    overrides=True,
)
