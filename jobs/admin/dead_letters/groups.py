"""Open dead letters by cause: the most frequent causes, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from jobs.services.explain.causes import MAX_CAUSES, causes_of
from queueops.core.values.masking import masked_text
from queueops.core.web.read_your_writes import may_lag
from queueops.screens import formatting
from queueops.screens.paging import as_uuid
from queueops.screens.verbs import show_page

NARROWED_BY = {"project": "project_id", "batch_id": "batch_id"}  # parameters of the address, each with its filter field


@may_lag
def groups(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Open dead letters by cause, the most frequent first."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    narrowed = {name: value for name in NARROWED_BY if (value := request.GET.get(name, "").replace("\0", ""))}
    if "batch_id" in narrowed and as_uuid(narrowed["batch_id"]) is None:
        raise Http404
    context = {
        "title": "Dead letters by cause",
        "groups": shown_causes(narrowed),
        "narrowed": narrowed,
        "most_groups": MAX_CAUSES,
        "may_requeue": request.user.has_perm("jobs.requeue_deadletter"),
        "may_discard": request.user.has_perm("jobs.discard_deadletter"),
        "list_href": reverse("admin:jobs_deadletter_changelist"),
    }
    return show_page(model_admin, request, "admin/jobs/deadletter/groups.html", context)


def shown_causes(narrowed: Mapping[str, str], *, most: int = MAX_CAUSES) -> list[dict[str, Any]]:
    """
    The causes of open dead letters, as pages show them.

    Args:
        narrowed: Names of NARROWED_BY with values; empty: dead letters of all projects.
    """
    causes = causes_of({NARROWED_BY[name]: value for name, value in narrowed.items()}, most=most)
    return [
        {
            "count": f"{cause.count:,}",
            "projects": [
                (name, f"{count:,}", urlencode({**narrowed, "fingerprint": cause.fingerprint, "project": name}))
                for name, count in cause.projects.items()
            ],
            "sample": cause.newest,
            "message": masked_text(cause.newest.error_message)[:300],
            "remediation": masked_text(cause.newest.remediation),
            "first": formatting.ago(cause.first_at) if cause.first_at else "",
            "last": formatting.ago(cause.newest.created_at),
            "query": urlencode({**narrowed, "fingerprint": cause.fingerprint}),
            "newest_href": reverse("admin:jobs_deadletter_change", args=[cause.newest.pk]) + "#attempts",
            "newest_has": " and ".join(cause.has),
        }
        for cause in causes
    ]
