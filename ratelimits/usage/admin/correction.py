"""Corrects a user's use up or down: a preview first, then the correction, with a reason."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from queueops.core.errors import QueueOpsError
from queueops.screens.forms import ReasonForm
from queueops.screens.paging import as_number
from queueops.screens.verbs import actor_of, ask, mark, show_error
from ratelimits.models import UsageTracking
from ratelimits.usage import ledger
from ratelimits.usage.models import MAX_QUOTA

from .parts import amount, remaining_of, units_of

PERMISSION = "ratelimits.correct_usage"
EXPLAINS = (
    "Counts as an event of its own, marked as a correction; the events that were reported stay as they are. You see"
    " first what it makes of the month."
)


class CorrectionForm(ReasonForm):
    amount = forms.IntegerField(
        min_value=-MAX_QUOTA,
        max_value=MAX_QUOTA,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="-50 takes 50 back, 50 adds them. Never below nothing used.",
    )
    field_order = ("amount", "reason")

    def clean_amount(self) -> int:
        wanted: int = self.cleaned_data["amount"]
        [row] = self.rows
        if not wanted:
            raise forms.ValidationError("Nothing would change.")
        if row.used + wanted < 0:
            raise forms.ValidationError(f"Only {row.used:,} are used: at most that can be taken back.")
        return wanted


def _correct(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
    """Show the form. The first POST previews what becomes of the month, the second corrects it."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    number = as_number(object_id)
    row = UsageTracking.objects.filter(pk=number).first() if number else None
    if row is None:
        raise Http404
    page = reverse("admin:ratelimits_usagetracking_change", args=[row.pk])
    unit = units_of([row.project_id])[row.project_id]
    form = CorrectionForm(request.POST if request.method == "POST" else None, rows=[row])
    form.fields["amount"].label = f"Add to what is used, in {unit}"
    seen = ""
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        seen = str(given["amount"])
        # A preview holds for its amount only. If another amount was typed since, the page first previews that amount.
        if request.POST.get("seen") == seen:
            try:
                corrected = ledger.correct(
                    row.project_id,
                    row.user_id,
                    row.month_year,
                    given["amount"],
                    actor=actor_of(request),
                    reason=given["reason"],
                )
            except QueueOpsError as error:
                show_error(form, error)
                seen = ""
            else:
                messages.success(request, f"Corrected by {given['amount']:+,}: {amount(corrected.used, unit)} used.")
                return HttpResponseRedirect(page)
    return ask(
        model_admin,
        request,
        title="Correct usage",
        form=form,
        explains=_becomes(row, int(seen), unit) if seen else EXPLAINS,
        overrides=bool(seen),
        button="Yes, correct" if seen else "See what it does",
        hidden={"seen": seen},
        named=[f"{row.project_id}, user {row.user_id}, {row.month_year}"],
        goes_back_to=page,
    )


def _becomes(row: UsageTracking, wanted: int, unit: str) -> str:
    after = UsageTracking(quota=row.quota, used=row.used + wanted, reserved=row.reserved)
    return (
        f"Used: {amount(row.used, unit)} before, {amount(after.used, unit)} afterwards."
        f" Remaining of {row.quota:,}: {remaining_of(row):,} before, {remaining_of(after):,} afterwards."
    )


mark(_correct, __name__="correct", needs=PERMISSION)
ACTION = action(_correct, description="Correct", url_path="correct", icon="edit_note", variant=ActionVariant.DEFAULT)
