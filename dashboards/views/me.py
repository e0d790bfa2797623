"""The producers' own page, and how they sign in to it with their key."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from dashboards.live.viewer import viewer_of_key
from dashboards.services.me import me_snapshot
from dashboards.services.wire import shown_states
from queueops.access.services import sessions
from queueops.access.services.guard import Purpose, SignInLocked, guarded
from queueops.core.web.client_address import client_address
from queueops.tenancy.models import Project

from .access import NOT_SIGNED_IN, producer_of

SIGNED_IN_SECONDS = 12 * 3600
MOST_PROJECTS_OFFERED = 200


class KeyForm(forms.Form):
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
        return render(request, "dashboards/sign_in.html", {"form": KeyForm()})
    projects = list(Project.objects.values_list("pk", flat=True)[:MOST_PROJECTS_OFFERED]) if viewer.is_staff else []
    return render(request, "dashboards/me.html", {"viewer": viewer, "projects": projects, "states": shown_states()})


@never_cache
@require_safe
def me_data(request: HttpRequest) -> HttpResponse:
    """What `/ws/v1/me` sends, for those whose socket fails."""
    viewer = producer_of(request)
    if viewer is None:
        return JsonResponse(NOT_SIGNED_IN, status=401)
    with viewer.reading():
        data = me_snapshot(viewer)
    return JsonResponse({"type": "snapshot", "cursor": 0, "at": data["at"], "data": data})


@sensitive_post_parameters("key")
@never_cache
@require_POST
def sign_in(request: HttpRequest) -> HttpResponse:
    """Check the key and keep its id, never the key; wrong ones lock the address for a while."""
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
                return HttpResponseRedirect(reverse("me"))
            status = 403
            form.add_error("key", "This key is unknown, expired or revoked, or it may not read.")
    response = render(request, "dashboards/sign_in.html", {"form": form}, status=status)
    for name, value in headers.items():
        response.headers[name] = value
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Forget the key; whoever is signed in to the admin stays so."""
    request.session.pop(sessions.PRODUCER_KEY, None)
    if request.user.is_authenticated:
        return HttpResponseRedirect(reverse("me"))
    request.session.flush()
    return HttpResponseRedirect(reverse("me"))
