"""The page that finds everything with a name or an id."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards.services.find import SEARCHED, find

from .access import operators_page


@never_cache
@require_safe
@operators_page
def page(request: HttpRequest) -> HttpResponse:
    """List the matches of `q`; if there is only one, go there."""
    term = request.GET.get("q", "")
    found = find(term, request.user)
    if found.only:
        return HttpResponseRedirect(found.only.href)
    return render(request, "dashboards/find.html", {"term": term, "found": found, "searched": SEARCHED})
