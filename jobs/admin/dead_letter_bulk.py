"""Dead letters by the filter: requeue all, discard all, export; and their groups by cause."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from jobs.models import DeadLetter
from jobs.services import bulk, export
from jobs.services.dead_letter_filter import DeadLetterFilter, parse_filter
from jobs.services.errors import InvalidFilter
from queueops.core.errors import QueueOpsError

from . import showing
from .forms import ConfirmForm, ReasonForm, RequeueForm
from .masking import masked_text
from .paging import time_of
from .verbs import actor_of, ask, show_error

MOST_COUNTED = 100_000  # of a preview; beyond it the page says "more than"
MOST_GROUPS = 200

# the list's parameters, and the filter's
PARAMETERS = {
    "project": "project_id",
    "batch_id": "batch_id",
    "kind": "kind",
    "service": "service",
    "error_code": "error_code",
    "fingerprint": "fingerprint",
}


def wanted_by(request: HttpRequest) -> DeadLetterFilter:
    """
    The open dead letters that the list's address means.

    Raises:
        InvalidFilter: A parameter has no such value.
    """
    given: dict[str, Any] = {}
    for parameter, field in PARAMETERS.items():
        if value := request.GET.get(parameter, "").strip().replace("\0", ""):
            given[field] = value
    for end, field in (("from", "created_from"), ("to", "created_until")):
        if day := request.GET.get(f"created_at_{end}_0", "").strip():
            clock = request.GET.get(f"created_at_{end}_1", "").strip() or ("00:00:00" if end == "from" else "23:59:59")
            given[field] = f"{day}T{clock}Z"
    return parse_filter(given)


def requeue_matching(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Requeue every open dead letter of the filter, in the background."""
    return _in_background(
        model_admin,
        request,
        permission="jobs.requeue_deadletter",
        title="Requeue all matching",
        done="requeued",
        form_class=RequeueForm,
        start=bulk.start_bulk_requeue,
        explains="Done in the background, in short chunks. Those that come later are not touched.",
    )


def discard_matching(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Discard every open dead letter of the filter, in the background."""
    return _in_background(
        model_admin,
        request,
        permission="jobs.discard_deadletter",
        title="Discard all matching",
        done="discarded",
        form_class=ReasonForm,
        start=bulk.start_bulk_discard,
        explains="Closed in the background without running again. This cannot be taken back.",
        overrides=True,
    )


def export_matching(model_admin: Any, request: HttpRequest, *, form: str) -> HttpResponseBase:
    """Open dead letters of the filter as a file, with their payloads as they are stored."""
    if not request.user.has_perm("jobs.requeue_deadletter"):  # the payloads are unmasked
        raise PermissionDenied
    try:
        letters = wanted_by(request).letters()
    except InvalidFilter as error:
        return _back_with(model_admin, request, error)
    write, content_type = {
        "csv": (export.dead_letters_as_csv, "text/csv; charset=utf-8"),
        "ndjson": (export.dead_letters_as_ndjson, "application/x-ndjson"),
    }[form]
    name = f"dead-letters-{timezone.now():%Y%m%d-%H%M%S}.{form}"
    return StreamingHttpResponse(
        write(letters),
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"},
    )


def groups(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Open dead letters by cause, the most frequent first."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": "Dead letters by cause",
        "groups": _groups(),
        "most_groups": MOST_GROUPS,
        "may_requeue": request.user.has_perm("jobs.requeue_deadletter"),
        "may_discard": request.user.has_perm("jobs.discard_deadletter"),
        "list_href": reverse("admin:jobs_deadletter_changelist"),
    }
    return TemplateResponse(request, "admin/jobs/deadletter/groups.html", context)


def _groups() -> list[dict[str, Any]]:
    """The counts come from the index of open dead letters alone; one row of each group says what it is."""
    counted = (
        DeadLetter.objects.open()
        .order_by()
        .values_list("fingerprint")
        .annotate(open_ones=Count("pk"))
        .order_by("-open_ones", "fingerprint")[:MOST_GROUPS]
    )
    counts = dict(counted)
    newest, oldest = _ends(list(counts), "-pk"), _ends(list(counts), "pk")
    samples = DeadLetter.objects.defer("payload", "attempts").in_bulk(list(newest.values()))
    found = []
    for fingerprint, count in counts.items():
        sample = samples.get(newest.get(fingerprint))
        if sample is None:
            continue  # resolved between the two queries
        query = urlencode({"fingerprint": fingerprint})
        found.append(
            {
                "count": count,
                "sample": sample,
                "message": masked_text(sample.error_message)[:300],
                "first": showing.ago(time_of(oldest[fingerprint])) if fingerprint in oldest else "",
                "last": showing.ago(sample.created_at),
                "query": query,
            }
        )
    return found


def _ends(fingerprints: list[str], order: str) -> dict[str, Any]:
    """The newest or oldest open one of each: one probe of the index a fingerprint, in one statement."""
    if not fingerprints:
        return {}
    first = [
        DeadLetter.objects.open().filter(fingerprint=one).order_by(order).values_list("fingerprint", "pk")[:1]
        for one in fingerprints
    ]
    rows = first[0].union(*first[1:], all=True) if len(first) > 1 else first[0]
    return dict(rows)


def _in_background(
    model_admin: Any,
    request: HttpRequest,
    *,
    permission: str,
    title: str,
    done: str,
    form_class: type[ConfirmForm],
    start: Any,
    explains: str,
    overrides: bool = False,
) -> HttpResponse:
    if not request.user.has_perm(permission):
        raise PermissionDenied
    try:
        wanted = wanted_by(request)
    except InvalidFilter as error:
        return _back_with(model_admin, request, error)
    form = form_class(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            operation = start(wanted, actor=actor_of(request), **form.cleaned_data)
        except QueueOpsError as error:
            show_error(form, error)
        else:
            messages.success(request, f"Started over {operation.total:,} dead letters.")
            return HttpResponseRedirect(reverse("admin:jobs_bulkoperation_change", args=[operation.pk]))
    counted = wanted.letters().order_by()[: MOST_COUNTED + 1].count()
    matching = f"more than {MOST_COUNTED:,}" if counted > MOST_COUNTED else f"{counted:,}"
    narrowed = wanted.model_dump(mode="json", exclude_none=True)
    return ask(
        model_admin,
        request,
        title=title,
        form=form,
        explains=explains,
        overrides=overrides,
        applying=matching if counted else 0,
        left_alone=0,
        done=done,
        named=[f"{name.replace('_', ' ')}: {value}" for name, value in narrowed.items()]
        or ["every open dead letter of every project"],
        goes_back_to=f"{reverse('admin:jobs_deadletter_changelist')}?{request.GET.urlencode()}",
    )


def _back_with(model_admin: Any, request: HttpRequest, error: QueueOpsError) -> HttpResponse:
    faults = "; ".join(f"{field}: {', '.join(said)}" for field, said in error.fields.items())
    messages.error(request, f"{error.message} {faults}")
    return HttpResponseRedirect(reverse("admin:jobs_deadletter_changelist"))
