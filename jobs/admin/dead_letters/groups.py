"""Open dead letters by cause: what most of them have in common, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.db.models.fields.json import KeyTransform
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from jobs.models import DeadLetter
from queueops.core.values.identifiers import time_of
from queueops.core.values.masking import masked_text
from queueops.core.web.recent_writes import may_lag
from queueops.screens import showing
from queueops.screens.paging import as_uuid

MOST_CAUSES_SHOWN = 200
NARROWED_BY = {"project": "project_id", "batch_id": "batch_id"}  # the address's parameters, and what they narrow


@may_lag
def groups(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Open dead letters by cause, the most frequent first."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    narrowed = {name: value for name in NARROWED_BY if (value := request.GET.get(name, "").replace("\0", ""))}
    if "batch_id" in narrowed and as_uuid(narrowed["batch_id"]) is None:
        raise Http404
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": "Dead letters by cause",
        "groups": causes_of(narrowed),
        "narrowed": narrowed,
        "most_groups": MOST_CAUSES_SHOWN,
        "may_requeue": request.user.has_perm("jobs.requeue_deadletter"),
        "may_discard": request.user.has_perm("jobs.discard_deadletter"),
        "list_href": reverse("admin:jobs_deadletter_changelist"),
    }
    return TemplateResponse(request, "admin/jobs/deadletter/groups.html", context)


def causes_of(narrowed: Mapping[str, str], *, most: int = MOST_CAUSES_SHOWN) -> list[dict[str, Any]]:
    """
    The causes of open dead letters, the most frequent first.

    The counts come from the index of open dead letters alone; one row of each group says what it is.

    Args:
        narrowed: By NARROWED_BY, of a project or a batch alone.
    """
    letters = DeadLetter.objects.open().filter(**{NARROWED_BY[name]: value for name, value in narrowed.items()})
    counted = (
        letters.order_by()
        .values_list("fingerprint")
        .annotate(open_ones=Count("pk"))
        .order_by("-open_ones", "fingerprint")[:most]
    )
    counts = dict(counted)
    newest, oldest = _ends(letters, list(counts), "-pk"), _ends(letters, list(counts), "pk")
    samples = (
        DeadLetter.objects.defer("payload", "attempts")
        .annotate(
            traceback=KeyTransform("traceback", KeyTransform(-1, "attempts")),
            log=KeyTransform("log", KeyTransform(-1, "attempts")),
        )
        .in_bulk(list(newest.values()))
    )
    found = []
    for fingerprint, count in counts.items():
        sample = samples.get(newest.get(fingerprint))
        if sample is None:
            continue  # resolved between the two queries
        query = urlencode({**narrowed, "fingerprint": fingerprint})
        found.append(
            {
                "count": f"{count:,}",
                "sample": sample,
                "message": masked_text(sample.error_message)[:300],
                "remediation": masked_text(sample.remediation),
                "first": showing.ago(time_of(oldest[fingerprint])) if fingerprint in oldest else "",
                "last": showing.ago(sample.created_at),
                "query": query,
                "newest_href": reverse("admin:jobs_deadletter_change", args=[sample.pk]) + "#attempts",
                "newest_has": " and ".join(name for name in ("traceback", "log") if getattr(sample, name)),
            }
        )
    return found


def _ends(letters: QuerySet[DeadLetter], fingerprints: list[str], order: str) -> dict[str, Any]:
    """The newest or oldest open one of each: one probe of the index a fingerprint, in one statement."""
    if not fingerprints:
        return {}
    first = [
        letters.filter(fingerprint=one).order_by(order).values_list("fingerprint", "pk")[:1] for one in fingerprints
    ]
    rows = first[0].union(*first[1:], all=True) if len(first) > 1 else first[0]
    return dict(rows)
