"""A job's whole result as a file, for a result that is too large for the page."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from jobs.features.results.read import ResultMissing, among_few, whole_result
from jobs.models import Job
from queueops.core.stores.store import StoreError
from queueops.core.values.masking import masked


def result_file(screen: Any, request: HttpRequest, pk: UUID) -> HttpResponse:
    """Secrets are masked, as on the page."""
    job = Job.objects.filter(pk=pk).only("id", "project_id", "status", "result").first()
    if not screen.has_view_permission(request, job):
        raise PermissionDenied
    if job is None or job.result is None:
        raise Http404
    try:
        with among_few():
            result = whole_result(job)
    except (ResultMissing, StoreError) as error:
        messages.error(request, error.message)
        return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[pk]))
    return HttpResponse(
        json.dumps(masked(result), ensure_ascii=False),
        content_type="application/json",
        headers={
            "Content-Disposition": f'attachment; filename="result-{pk}.json"',
            "X-Content-Type-Options": "nosniff",
        },
    )
