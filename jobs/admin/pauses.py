"""Pause switches: the work that may not start, since when, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, OuterRef, QuerySet, Subquery, UUIDField, When
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import action

from jobs.features.refused_calls import stops
from jobs.models import Batch, PauseSwitch
from jobs.services.operate import pauses
from jobs.services.operate.job_filter import Counted
from jobs.services.operate.names_heard import unheard_of_scope
from queueops.core.errors import QueueOpsError
from queueops.core.values.numbers import numbered
from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import time_column
from queueops.screens.forms import OptionalReasonForm, minutes_field
from queueops.screens.verbs import (
    ReadOnlyMixin,
    Verb,
    VerbOutcome,
    actor_of,
    ask,
    on_one,
    on_selected,
    show_error,
)
from queueops.tenancy.people import name_of
from ratelimits.limits import ramps

from .forms import PauseForm

PERMISSION = "jobs.pause_work"
_batch = TypedAttribute[str | None]("batch_name")
ASKED = ("scope", "key", "reason")


RAMP_MINUTES = 10


class ResumeForm(OptionalReasonForm):
    over_minutes = minutes_field(
        "Over minutes",
        "Every limit, and the slots of services without one, open bit by bit in this time. Empty or 0: at once.",
        RAMP_MINUTES,
    )
    field_order = ("over_minutes", "reason")

    def __init__(self, *args: Any, rows: Sequence[PauseSwitch] = (), **kwargs: Any) -> None:
        super().__init__(*args, rows=rows, **kwargs)
        if all(one.scope != PauseSwitch.Scope.GLOBAL for one in rows):
            del self.fields["over_minutes"]

    def clean_over_minutes(self) -> float | None:
        minutes: float | None = self.cleaned_data["over_minutes"]
        if minutes and not ramps.MIN_SECONDS <= minutes * 60 <= ramps.MAX_SECONDS:
            raise forms.ValidationError("From a second to a week.")
        return minutes


def _resume(ids: Sequence[int], *, actor: str, reason: str, over_minutes: float | None = None) -> VerbOutcome:
    switches = list(RESUME.applies(PauseSwitch.objects.filter(pk__in=ids)))
    resumed = len(switches)
    if over_minutes:
        pauses.resume_everything(over_seconds=60 * over_minutes, actor=actor, reason=reason)
        switches = [one for one in switches if one.scope != PauseSwitch.Scope.GLOBAL]
    released = sum(pauses.resume_scope(one.scope, one.key, actor=actor, reason=reason) for one in switches)
    ramp = f" The limits open over {over_minutes:g} minutes." if over_minutes else ""
    return VerbOutcome(resumed, report=f"{resumed:,} resumed; {numbered(released, 'held job')} may run again.{ramp}")


def _try(ids: Sequence[int], *, actor: str) -> VerbOutcome:
    tried = stops.try_now(list(PauseSwitch.objects.filter(pk__in=ids)), actor=actor)
    return VerbOutcome(tried, len(ids) - tried)


RESUME = Verb(
    name="resume",
    permission=PERMISSION,
    label="Resume",
    done="resumed",
    explains="Its jobs may start again, unless another pause covers them.",
    icon="play_arrow",
    # A person cannot end a switch that the platform set. A window's switch ends with the window, or on its page.
    applies=lambda rows: rows.filter(scope__in=pauses.OPERATORS, window=None),
    unfit="set by the platform or by a window",
    carry_out=_resume,
    form=ResumeForm,
)


TRY = Verb(
    name="try_now",
    permission=PERMISSION,
    label="Try again now",
    done="tried within seconds",
    explains="Its provider refuses all its calls, by the account's or the model's fault. One of its jobs is sent now, "
    "and not only once a minute; where that is accepted, the others follow.",
    icon="refresh",
    applies=lambda rows: rows.filter(scope=PauseSwitch.Scope.REFUSED),
    unfit="refused by no provider",
    carry_out=_try,
)


@admin.register(PauseSwitch)
class PauseSwitchAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("switch", "reason", "who", "since", "ends")
    actions = ("resume_selected", "try_now_selected")
    actions_list = ("pause_work",)
    actions_detail = ("resume", "try_now")
    list_before_template = "admin/jobs/pauseswitch/explained.html"
    empty_title = "Nothing is paused."
    empty_hint = "Pause a project, service, kind, batch or everything with the button above."

    resume_selected, resume = on_selected(RESUME), on_one(RESUME)
    try_now_selected, try_now = on_selected(TRY), on_one(TRY)

    def audit_targets(self, row: PauseSwitch) -> list[str]:
        return [f"{row}"]

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        return (*self.list_display, "in_row") if request.user.has_perm(PERMISSION) else self.list_display

    @admin.display(description="")
    def in_row(self, switch: PauseSwitch) -> SafeString | str:
        if switch.window_id:
            return formatting.link("jobs_maintenancewindow", switch.window_id, "Window")
        if switch.scope == PauseSwitch.Scope.REFUSED:
            address = reverse("admin:jobs_pauseswitch_try_now", args=[switch.pk])
            return format_html('<a class="qo-link" href="{}">Try again now…</a>', address)
        if switch.scope not in pauses.OPERATORS:
            return ""  # the platform itself ends a switch that it set
        address = reverse("admin:jobs_pauseswitch_resume", args=[switch.pk])
        return format_html('<a class="qo-link" href="{}">Resume…</a>', address)

    def get_queryset(self, request: HttpRequest) -> QuerySet[PauseSwitch]:
        batches = Batch.objects.filter(pk=Cast(OuterRef("key"), UUIDField())).values("name")[:1]
        of_batch = When(scope=PauseSwitch.Scope.BATCH, then=Subquery(batches))  # other keys are no ids
        rows: QuerySet[PauseSwitch] = super().get_queryset(request)
        return rows.annotate(**{_batch.name: Case(of_batch)})

    @admin.display(description="paused")
    def switch(self, switch: PauseSwitch) -> SafeString | str:
        name = _batch.of(switch)
        return format_html('batch {} <code class="qo-id">…{}</code>', name, switch.key[-8:]) if name else str(switch)

    @admin.display(description="by")
    def who(self, switch: PauseSwitch) -> str:
        return "a maintenance window" if switch.window_id else name_of(switch.paused_by)

    since = time_column("since", "created_at")
    ends = time_column("until", "until")

    @action(description="Pause work…", url_path="pause", icon="pause")  # type: ignore[untyped-decorator]
    def pause_work(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        back = reverse("admin:jobs_pauseswitch_changelist")
        sent = request.method == "POST"
        form = PauseForm(request.POST if sent else None, initial={name: request.GET.get(name, "") for name in ASKED})
        covered: Counted | None = None
        if sent and form.is_valid():
            wanted = form.cleaned_data
            try:
                covered = pauses.count_covered(wanted["scope"], wanted["key"])
                # The count is for the typed scope and key. If another scope or key was typed meanwhile, the page shows
                # its count first.
                if request.POST.get("counted") == f"{wanted['scope']} {wanted['key']}":
                    held = pauses.pause_scope(
                        wanted["scope"], wanted["key"], actor=actor_of(request), reason=wanted["reason"]
                    )
                    messages.success(request, _report(wanted["scope"], held, covered))
                    return HttpResponseRedirect(back)
            except QueueOpsError as error:
                show_error(form, error)
        counted = "" if covered is None else f"{form.cleaned_data['scope']} {form.cleaned_data['key']}"
        return ask(
            self,
            request,
            title="Pause work",
            form=form,
            explains=_explain(form, covered),
            overrides=covered is not None,
            button="Yes, pause" if covered is not None else "See what it covers",
            hidden={"counted": counted},
            goes_back_to=back,
        )

    pause_work.needs = PERMISSION


def _explain(form: PauseForm, covered: Counted | None) -> str:
    if covered is None:
        return "Nothing new of the scope starts until it is resumed. You see first how many jobs that is."
    least = "At least " if covered.is_least else ""
    # A service may be paused before its first job, so the form cannot refuse an unknown name; it warns of one.
    unsure = " ".join(["", *unheard_of_scope(form.cleaned_data["scope"], form.cleaned_data["key"])])
    return f"{least}{covered.count:,} waiting jobs will not start until it is resumed.{unsure} Running jobs go on."


def _report(scope: str, held: int, covered: Counted) -> str:
    count = held if scope in pauses.HOLDING else covered.count
    return f"Paused; {numbered(count, 'job waits', 'jobs wait')}. Running jobs go on."
