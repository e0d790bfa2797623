"""`At most N at once` on a project's page: its caps of calls in flight, and the form that sets them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django import forms
from django.http import HttpRequest
from django.urls import reverse
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldBooleanSwitchWidget,
)

from jobs.handlers.registry import all_handlers
from queueops.screens.forms import OptionalReasonForm, SuggestingWidget, offer
from queueops.screens.verbs import Verb, VerbOutcome
from ratelimits.limits.known_names import KnownName, suggested
from ratelimits.limits.validation import figure
from ratelimits.tuning.concurrency_caps import MAX_CALLS_AT_ONCE, AtOnce, at_once_of, set_at_once

SET, REMOVE = "ratelimits.change_limit", "ratelimits.delete_limit"


class AtOnceForm(OptionalReasonForm):
    at_most = forms.IntegerField(
        label="At most",
        min_value=1,
        max_value=MAX_CALLS_AT_ONCE,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Calls in flight at the same time. To let none go, pause the work instead.",
    )
    kind = forms.ChoiceField(
        label="Of kind", required=False, widget=UnfoldAdminSelectWidget, help_text="Empty: of every kind."
    )
    service = forms.CharField(
        label="To service",
        max_length=64,
        required=False,
        widget=SuggestingWidget(partial(suggested, KnownName.SERVICE)),
        help_text="As the list of jobs shows it. Empty: to every service.",
    )
    each_user = forms.BooleanField(
        label="For each user",
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="So many for each user of the project, as their provider sees them. Off: for all of it together.",
    )
    field_order = ("at_most", "kind", "service", "each_user", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kinds = [handler.kind for handler in all_handlers() if not handler.internal]
        offer(self, "kind", kinds, none="every kind")


def _set(ids: Sequence[str], *, actor: str, at_most: int, **whose: Any) -> VerbOutcome:
    told: tuple[str, ...] = ()
    for project_id in ids:
        told = set_at_once(project_id, at_most, actor=actor, **whose).warnings
    report = f"At most {at_most:,} at once from now on. Calls that are already in flight continue."
    return VerbOutcome(len(ids), report=" ".join([report, *told]))


AT_ONCE = Verb(
    name="at_once",
    permission=SET,
    label="At most N at once",
    done="changed",
    explains="Of the calls you name, so many may be in flight at the same time; the others wait, which costs them no"
    " attempt. Set the same once more to change the number.",
    icon="stacks",
    carry_out=_set,
    form=AtOnceForm,
)


def caps_shown(project_id: str, request: HttpRequest) -> list[dict[str, str]]:
    """
    Return a project's caps for its page. Each cap is a limit: links lead to the pages that change and remove it.
    """
    may_remove = request.user.has_perm(REMOVE)
    return [
        {
            "what": _in_words(cap),
            "at_most": figure(cap.at_most),
            "used": figure(cap.used),
            "state": "" if cap.enforced else "not enforced",
            "name": cap.name,
            "page": reverse("admin:ratelimits_limit_change", args=[cap.limit_id]),
            "remove": reverse("admin:ratelimits_limit_remove", args=[cap.limit_id]) if may_remove else "",
        }
        for cap in at_once_of(project_id)
    ]


def _in_words(cap: AtOnce) -> str:
    what = f"jobs of {cap.kind}" if cap.kind else "all jobs"
    where = f" to {cap.service}" if cap.service else ""
    return f"{what}{where}, for each user" if cap.each_user else f"{what}{where}"
