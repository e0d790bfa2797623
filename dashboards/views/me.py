"""The producers' own page, and how they sign in to it with their key."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from dashboards.live.subjects import open_job
from dashboards.live.viewer import KEY, Viewer, narrowed, viewer_of_key
from dashboards.services.me import about_job, job_of, me_snapshot
from dashboards.services.shared.wire import iso, shown_states
from jobs.models import DeadLetter
from jobs.services.explain.event_log import log_cursor
from jobs.services.operate.dead_letters import requeue_dead_letters
from queueops.access.services import sessions
from queueops.access.services.guard import Purpose, SignInLocked, guarded
from queueops.core.errors import QueueOpsError, error_body
from queueops.core.values.masking import masked
from queueops.core.web.client_address import client_address
from queueops.screens.paging import as_uuid
from queueops.screens.verbs import actor_of
from queueops.tenancy.models import ProducerKey, Project, Scope

from .access import NOT_SIGNED_IN, producer_of

SIGNED_IN_SECONDS = 12 * 3600
MAX_PROJECTS_OFFERED = 200
NO_SUCH_JOB = error_body("not_found", "There is no such job.")
MAY_NOT_REQUEUE = error_body("permission_denied", "This key may not requeue: it lacks the scope operate.")
NOTHING_TO_REQUEUE = error_body("wrong_state", "It has no open dead letter: it was requeued or discarded before.")


class KeyForm(forms.Form):
    job = forms.CharField(required=False, widget=forms.HiddenInput)  # the job whose page was asked for
    key = forms.CharField(
        label="Producer key",
        max_length=200,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "autofocus": True, "spellcheck": "false"}),
        error_messages={"required": "Paste your key."},
    )


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    viewer = producer_of(request)
    if viewer is None:
        return render(request, "dashboards/sign_in.html", {"form": KeyForm(initial={"job": request.GET.get("job")})})
    projects = list(Project.objects.values_list("pk", flat=True)[:MAX_PROJECTS_OFFERED]) if viewer.is_staff else []
    return render(request, "dashboards/me.html", {"viewer": viewer, "projects": projects, "states": shown_states()})


@never_cache
@require_safe
def me_data(request: HttpRequest) -> HttpResponse:
    """Return what `/ws/v1/me` sends, for people whose socket fails."""
    viewer = producer_of(request)
    if viewer is None:
        return JsonResponse(NOT_SIGNED_IN, status=401)
    cursor = log_cursor()
    with viewer.reading():
        data = me_snapshot(viewer)
    return JsonResponse({"type": "snapshot", **cursor.answer(), "at": data["at"], "data": data})


@never_cache
@require_safe
def job(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Show one job of the producer: its state, why it waits, and its result."""
    viewer = producer_of(request)
    if viewer is None:
        return HttpResponseRedirect(f"{reverse('me')}?{urlencode({'job': job_id})}")
    with viewer.reading():
        found = job_of(viewer, job_id)
    if found is None:
        raise Http404
    of_project = narrowed(viewer, project_id=found.project_id, user_id=viewer.user_id) or viewer
    shown = {"viewer": of_project, "job": found, "may_requeue": _may_requeue(request, viewer), "states": shown_states()}
    return render(request, "dashboards/me_job.html", shown)


@never_cache
@require_safe
def job_data(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """
    Return what the page of a job shows. Secrets are masked, as on all pages: people look over each other's shoulders.
    """
    viewer = producer_of(request)
    if viewer is None:
        return JsonResponse(NOT_SIGNED_IN, status=401)
    with viewer.reading():
        found = job_of(viewer, job_id)
        cursor = log_cursor()
        shown = open_job(viewer, job_id).read(cursor) if found else None
        if found is None or shown is None:
            return JsonResponse(NO_SUCH_JOB, status=404)
        data = {"job": masked(json.loads(shown)), **about_job(found)}
    return JsonResponse({"type": "snapshot", **cursor.answer(), "at": iso(timezone.now()), "data": data})


@require_POST
def requeue(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Requeue a job's dead letter, as the API does for the same key."""
    viewer = producer_of(request)
    if viewer is None:
        return JsonResponse(NOT_SIGNED_IN, status=401)
    if not _may_requeue(request, viewer):
        return JsonResponse(MAY_NOT_REQUEUE, status=403)
    found = job_of(viewer, job_id)
    letter = DeadLetter.objects.open().filter(job_id=found.pk).first() if found else None
    if letter is None:
        return JsonResponse(NOTHING_TO_REQUEUE, status=409)
    key = _key_of(viewer)
    actor = f"key:{key.prefix}" if key else actor_of(request)
    try:
        moved = requeue_dead_letters([letter.pk], actor=actor, note=request.POST.get("note", "")).moved
    except QueueOpsError as error:
        return JsonResponse(error.as_dict(), status=error.status)
    if letter.pk not in moved:
        return JsonResponse(NOTHING_TO_REQUEUE, status=409)
    return JsonResponse({"id": str(moved[letter.pk])})


def _key_of(viewer: Viewer) -> ProducerKey | None:
    is_key = viewer.identity.startswith(KEY)
    return ProducerKey.objects.usable().filter(pk=viewer.identity.removeprefix(KEY)).first() if is_key else None


def _may_requeue(request: HttpRequest, viewer: Viewer) -> bool:
    key = _key_of(viewer)
    if key is not None:
        return Scope.OPERATE.value in key.scopes
    user: Any = request.user
    return viewer.is_staff and user.has_perm("jobs.requeue_deadletter")


@sensitive_post_parameters("key")
@never_cache
@require_POST
def sign_in(request: HttpRequest) -> HttpResponse:
    """Check the key and keep only its id; wrong keys lock the address for a while."""
    form = KeyForm(request.POST)
    status, headers = 400, {}
    if form.is_valid():
        key = form.cleaned_data["key"].strip()
        try:
            viewer = guarded(Purpose.KEY, lambda: viewer_of_key(key), address=client_address(request))
        except SignInLocked as locked:
            status, headers = locked.status, {"Retry-After": str(locked.retry_after)}
            form.add_error("key", locked.message)
        else:
            if viewer is not None:
                request.session.cycle_key()
                request.session[sessions.PRODUCER_KEY] = int(viewer.identity.removeprefix("key:"))
                request.session.set_expiry(SIGNED_IN_SECONDS)
                wanted = as_uuid(form.cleaned_data["job"])
                return HttpResponseRedirect(reverse("me-job", args=[wanted]) if wanted else reverse("me"))
            status = 403
            form.add_error("key", "This key is unknown, expired or revoked, or it may not read.")
    response = render(request, "dashboards/sign_in.html", {"form": form}, status=status)
    for name, value in headers.items():
        response.headers[name] = value
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Forget the key. Somebody who is signed in to the admin stays signed in."""
    request.session.pop(sessions.PRODUCER_KEY, None)
    if request.user.is_authenticated:
        return HttpResponseRedirect(reverse("me"))
    request.session.flush()
    return HttpResponseRedirect(reverse("me"))
