"""Operators' actions on the dashboard: the admin's own verbs, answered as JSON."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from jobs.models import Batch, PauseSwitch
from jobs.services.operate.pauses import pause_scope
from queueops.core.errors import QueueOpsError, error_body
from queueops.screens.forms import OptionalReasonForm
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, verb_of
from ratelimits.models import QuotaAlert, ResumeRamp

from .access import operators_data

BATCH_VERBS = {"pause", "resume", "cancel"}

NOT_FOUND = error_body("not_found", "It is not there any more.")
LEFT_ALONE = error_body("nothing_to_do", "There was nothing to do: somebody or something was faster.")


@require_POST
def act_on_batch(request: HttpRequest, batch_id: UUID, verb: str) -> HttpResponse:
    return _act(request, Batch.objects.filter(pk=batch_id), verb if verb in BATCH_VERBS else "")


@require_POST
def acknowledge_alert(request: HttpRequest, alert_id: int) -> HttpResponse:
    return _act(request, QuotaAlert.objects.filter(pk=alert_id), "acknowledge")


@require_POST
def resume(request: HttpRequest, switch_id: int) -> HttpResponse:
    return _act(request, PauseSwitch.objects.filter(pk=switch_id), "resume")


@require_POST
def steer_ramp(request: HttpRequest, verb: str) -> HttpResponse:
    name = {"hold": "hold", "continue": "go_on", "end": "end"}.get(verb, "")
    return _act(request, ResumeRamp.objects.all(), name)


@require_POST
@operators_data("jobs.pause_work")
def pause_everything(request: HttpRequest) -> HttpResponse:
    """Pause everything: nothing new starts until somebody resumes. Permission and audit entry are as for any pause."""
    form = OptionalReasonForm(request.POST, rows=[])
    if not form.is_valid():
        return JsonResponse(_faults(form), status=400)
    pause_scope(PauseSwitch.Scope.GLOBAL, "", actor=actor_of(request), **form.cleaned_data)
    return JsonResponse({"report": "Everything is paused. Running jobs go on."})


def _act(request: HttpRequest, rows: QuerySet[Any], name: str) -> HttpResponse:
    verb = verb_of(rows.model, name)
    if verb is None:
        return JsonResponse(NOT_FOUND, status=404)

    @operators_data(verb.permission)
    def allowed(request: HttpRequest) -> HttpResponse:
        if not rows.exists():
            return JsonResponse(NOT_FOUND, status=404)
        chosen = list(verb.applies(rows))
        if not chosen:
            return JsonResponse(LEFT_ALONE, status=409)
        form = verb.form(request.POST, rows=chosen)
        if not form.is_valid():
            return JsonResponse(_faults(form), status=400)
        try:
            outcome = verb.carry_out([row.pk for row in chosen], actor=actor_of(request), **form.cleaned_data)
        except QueueOpsError as error:
            return JsonResponse(error.as_dict(), status=error.status)
        return JsonResponse({"report": _sentence(verb, outcome), "moved": outcome.moved, "href": outcome.goes_to})

    return allowed(request)


def _faults(form: Form) -> dict[str, Any]:
    faults = {name: [str(fault) for fault in found] for name, found in form.errors.items()}
    return error_body("invalid_input", "Something is missing.", fields=faults)


def _sentence(verb: Verb, outcome: VerbOutcome) -> str:
    return outcome.report or f"{outcome.moved:,} {verb.done}, {outcome.unmoved:,} left alone."
