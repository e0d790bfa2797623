"""An operator's actions on every dead letter that the list's filters match; and their export."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from jobs.admin.forms import BulkRequeueForm, PacedReasonForm
from jobs.admin.matching import Matching, parameters_of
from jobs.errors import InvalidFilter
from jobs.services.operate import bulk, export
from jobs.services.operate.dead_letter_filter import DeadLetterFilter, parse_filter
from jobs.services.operate.job_filter import Counted
from queueops.audit import trail
from queueops.core.web import downloads
from queueops.core.web.read_your_writes import reader_for
from queueops.screens.verbs import actor_of
from ratelimits.limits.catalogue import rules
from ratelimits.models import Unit

from . import verbs

MAX_LETTERS_MATCHED = 100_000  # a preview stops counting here; the page then says "at least"
QUOTA_SHARE = 0.5  # the part of a service's slowest limit that a replay should use: the rest is for new work

# The parameters of the list's address, each with the field of the filter that it sets.
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
    Return the filter of open dead letters that the list's address states.

    Raises:
        InvalidFilter: A parameter has a value that its field does not take.
    """
    return parse_filter(parameters_of(request, PARAMETERS))


def count_letters(wanted: DeadLetterFilter) -> Counted:
    counted = wanted.letters().order_by()[: MAX_LETTERS_MATCHED + 1].count()
    return Counted(min(counted, MAX_LETTERS_MATCHED), is_least=counted > MAX_LETTERS_MATCHED)


def gentle_spread(wanted: DeadLetterFilter, count: int) -> Mapping[str, Any]:
    """Propose minutes for the replay, so that it takes QUOTA_SHARE of the service's slowest request limit."""
    service = wanted.service or wanted.letters().order_by("fingerprint").values_list("service", flat=True).first()
    counting = [rule for rule in rules() if (rule.service, rule.unit) == (service, Unit.REQUESTS) and not rule.shadow]
    rates = [rule.refill_per_second for rule in counting if rule.refill_per_second]
    rates += [rule.capacity / rule.window_seconds for rule in counting if rule.window_seconds]
    if not rates or not count:
        return {}
    return {"spread_seconds": math.ceil(count / (min(rates) * QUOTA_SHARE) / 60)}


REQUEUE = Matching(verbs.REQUEUE, form=BulkRequeueForm, start=bulk.start_bulk_requeue, initial=gentle_spread)
DISCARD = Matching(verbs.DISCARD, form=PacedReasonForm, start=bulk.start_bulk_discard)
ALL_LETTERS = (REQUEUE, DISCARD)


def export_matching(model_admin: Any, request: HttpRequest, *, form: str) -> HttpResponseBase:
    """Answer with the open dead letters that the filter matches, as a file with the payloads as they are stored."""
    if not request.user.has_perm("jobs.export_deadletter"):
        raise PermissionDenied
    try:
        wanted = wanted_by(request)
    except InvalidFilter as error:
        messages.error(request, error.message)
        return HttpResponseRedirect(reverse("admin:jobs_deadletter_changelist"))
    write, content_type = {
        "csv": (export.dead_letters_as_csv, "text/csv; charset=utf-8"),
        "ndjson": (export.dead_letters_as_ndjson, "application/x-ndjson"),
    }[form]
    with transaction.atomic():
        trail.record(
            actor=actor_of(request),
            action="export_dead_letters",
            target=f"dead letters as {form}",
            after={"filter": wanted.model_dump(mode="json", exclude_none=True)},
            moved=0,
            project_id=wanted.project_id or "",
        )
    name = f"dead-letters-{timezone.now():%Y%m%d-%H%M%S}.{form}"
    return downloads.export(request, write(wanted.letters(), reader_for(request)), content_type, name)
