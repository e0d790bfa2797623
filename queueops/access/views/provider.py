"""Signing in by the provider of QUEUEOPS_OIDC_ISSUER; without a provider these addresses answer 404."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import RedirectURLMixin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from queueops.access.services.trail import tell_failure
from queueops.core.errors import QueueOpsError

from .sign_in import past_first_factor

GOES_ON_TO = "provider_goes_on_to"  # kept in the session while somebody is at the provider


class _Wanted(RedirectURLMixin):
    """The page that somebody wants to see after signing in; an address of another host is ignored."""

    next_page = "admin:index"

    def __init__(self, request: HttpRequest) -> None:
        self.request = request


def _provider_page(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Decorate a view: an error is answered with a page that shows it, and nobody is signed in."""

    @wraps(view)
    def page(request: HttpRequest) -> HttpResponse:
        if not settings.QUEUEOPS.oidc_issuer:
            raise Http404
        try:
            return view(request)
        except QueueOpsError as error:
            tell_failure(error.code, "provider", attempt=1, locks=False)
            context = {
                **admin.site.each_context(request),
                "title": "Not signed in",
                "error": error,
                "reason": error.details.get("reason", ""),
                "config": settings.QUEUEOPS,
            }
            return TemplateResponse(request, "admin/access/not_signed_in.html", context, status=error.status)

    return never_cache(require_GET(page))


@_provider_page
def begin(request: HttpRequest) -> HttpResponse:
    """
    Send the browser to the provider. Only links lead here: browsers hold a form's redirect to the page's `form-action`.
    """
    from queueops.access.services import provider

    goes_on_to = _Wanted(request).get_success_url()
    response = provider.sign_in_address(request, request.build_absolute_uri(reverse("access:provider-callback")))
    request.session[GOES_ON_TO] = goes_on_to
    return response


@_provider_page
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in somebody who comes back from the provider."""
    from queueops.access.services import provided, provider

    claims = provider.claims_of(request)
    user = provided.welcome(claims)
    goes_on_to = request.session.pop(GOES_ON_TO, reverse("admin:index"))
    return past_first_factor(request, user, goes_on_to, vouched=provided.is_second_factor_shown(claims))


@_provider_page
def end(request: HttpRequest) -> HttpResponse:
    """Sign out at the provider too, where it has a page for that."""
    from queueops.access.services import provider

    back = request.build_absolute_uri(reverse("admin:login"))
    address = provider.discovered().get("end_session_endpoint")
    if not address:
        return HttpResponseRedirect(back)
    asked = urlencode({"client_id": settings.QUEUEOPS.oidc_client_id, "post_logout_redirect_uri": back})
    return HttpResponseRedirect(f"{address}{'&' if '?' in address else '?'}{asked}")
