"""Pricing the calls that had no price."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import action

from queueops.core.values.numbers import numbered
from queueops.screens.forms import ReasonForm
from queueops.screens.verbs import actor_of, ask, mark
from ratelimits.money.spend import price_unpriced

PERMISSION = "ratelimits.price_spend"


def _price(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Ask, then price the calls that have no price yet by the prices of their time."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    goes_back_to = reverse("admin:ratelimits_spend_changelist")
    form = ReasonForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        done = price_unpriced(actor=actor_of(request), reason=form.cleaned_data["reason"])
        left = f"; {numbered(done.left, 'call')} still without: no price was valid then" if done.left else ""
        messages.add_message(
            request,
            messages.WARNING if done.left else messages.SUCCESS,
            f"{numbered(done.filled, 'call')} priced{left}.",
        )
        return HttpResponseRedirect(goes_back_to)
    return ask(
        model_admin,
        request,
        title="Price what had no price",
        form=form,
        explains="Calls that have no price get the one that was valid when they were made, if there is one now. Calls"
        " that have one keep it: a price that is corrected does not rewrite what was spent.",
        overrides=False,
        button="Price them",
        goes_back_to=goes_back_to,
    )


mark(_price, __name__="price_unpriced", needs=PERMISSION)
ACTION = action(_price, description="Price what had no price…", url_path="price", icon="sell")
