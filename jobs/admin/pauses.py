"""Pause switches: what may not start, since when, by whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action

from jobs.models import PauseSwitch
from jobs.services import pauses
from queueops.core.errors import QueueOpsError

from . import showing
from .forms import OptionalReasonForm, PauseForm
from .verbs import Outcome, ReadOnlyMixin, Verb, VerbsMixin, actor_of, ask, on_one, on_selected, show_error

PERMISSION = "jobs.pause_work"


def _resume(ids: Sequence[int], *, actor: str, reason: str) -> Outcome:
    switches = list(PauseSwitch.objects.filter(pk__in=ids))
    released = sum(pauses.resume_scope(one.scope, one.key, actor=actor, reason=reason) for one in switches)
    return Outcome(len(switches), report=f"{len(switches):,} resumed; {released:,} held jobs may run again.")


RESUME = Verb(
    name="resume",
    permission=PERMISSION,
    label="Resume",
    done="resumed",
    explains="Its jobs may start again, unless another pause covers them.",
    icon="play_arrow",
    applies=lambda rows: rows,
    carry_out=_resume,
    form=OptionalReasonForm,
)


@admin.register(PauseSwitch)
class PauseSwitchAdmin(ReadOnlyMixin, VerbsMixin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    list_display = ("switch", "reason", "paused_by", "since")
    actions = ("resume_selected",)
    actions_list = ("pause_work",)
    actions_detail = ("resume",)
    list_before_template = "admin/jobs/pauseswitch/explained.html"
    empty_title = "Nothing is paused."
    empty_hint = "Pause a project, service, kind, batch or everything with the button above."

    resume_selected, resume = on_selected(RESUME), on_one(RESUME)

    @admin.display(description="paused")
    def switch(self, switch: PauseSwitch) -> str:
        return str(switch)

    @admin.display(description="since")
    def since(self, switch: PauseSwitch) -> SafeString | str:
        return showing.ago(switch.created_at)

    @action(description="Pause work…", url_path="pause", icon="pause")  # type: ignore[untyped-decorator]
    def pause_work(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        back = reverse("admin:jobs_pauseswitch_changelist")
        form = PauseForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            wanted: dict[str, Any] = form.cleaned_data
            try:
                held = pauses.pause_scope(
                    wanted["scope"], wanted["key"].strip(), actor=actor_of(request), reason=wanted["reason"]
                )
            except QueueOpsError as error:
                show_error(form, error)
            else:
                if not held and wanted["scope"] in pauses.HOLDING:
                    # A service may be paused before its first job, so a misspelt one cannot be refused.
                    messages.warning(request, "Paused, but no job of that name waits. Is it spelt right?")
                else:
                    messages.success(request, f"Paused; {held:,} jobs held. Running jobs go on.")
                return HttpResponseRedirect(back)
        return ask(
            self,
            request,
            title="Pause work",
            form=form,
            explains="Nothing new of the scope starts until it is resumed.",
            goes_back_to=back,
        )

    pause_work.needs = PERMISSION
