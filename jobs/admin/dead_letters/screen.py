"""Dead letters: jobs that failed for good, why, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.admin.filters import ErrorCodeFilter, FingerprintFilter, KindFilter, ServiceFilter
from jobs.admin.jobs.form import REQUEUE_WITH_CHANGES
from jobs.admin.jobs.timeline import log_text
from jobs.admin.matching import Matching, MatchingMixin
from jobs.features.saved_filters.admin import SavedFiltersMixin
from jobs.lanes import name_of
from jobs.models import Batch, DeadLetter, Job, Resolution
from jobs.services.operate.dead_letter_filter import DeadLetterFilter
from jobs.services.operate.job_filter import Counted
from jobs.tracebacks import without_diagnostics
from queueops.core.values.masking import masked_text, pretty
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.filters import BatchFilter, Choice, ProjectFilter
from queueops.screens.formatting import NOTHING
from queueops.screens.paging import BoundedListMixin, CreatedFilter, IdSearchMixin, filters_of
from queueops.screens.verbs import ReadOnlyMixin, on_one, on_selected
from queueops.tenancy import people
from queueops.tenancy.user_labels import labels_of

from . import bulk, groups
from .verbs import DISCARD, EDIT, REQUEUE

RESOLUTIONS = {"open": ("red", "error"), "requeued": ("green", "replay"), "discarded": ("grey", "delete")}
_target = TypedAttribute[str]("goes_to")
_user = TypedAttribute[str]("of_user")
_batch = TypedAttribute[SafeString | str]("of_batch")


class ResolutionFilter(Choice):
    """Shows open dead letters, the ones that need a person, unless another choice is made."""

    title = "state"
    parameter_name = "resolution"
    all_option = ["", "open"]
    choices_offered = (*Resolution.choices, ("any", "all"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        chosen = self.value()
        if chosen == "any" or request.GET.get("q"):
            return queryset
        return queryset.filter(resolution=chosen or None)


def resolution_badge(letter: DeadLetter) -> SafeString:
    words = letter.resolution or "open"
    return formatting.badge(*RESOLUTIONS[words], words)


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyMixin, SavedFiltersMixin, MatchingMixin, IdSearchMixin, BoundedListMixin, PageAdmin):
    list_display = (
        "letter",
        "kind",
        "error",
        "goes_to",
        "of_user",
        "of_batch",
        "of_project",
        "tries",
        "resolved",
        "age",
    )
    list_filter = (
        ResolutionFilter, ProjectFilter, KindFilter, ServiceFilter, ErrorCodeFilter, FingerprintFilter, BatchFilter,
        ("created_at", CreatedFilter),
    )  # fmt: skip
    list_filter_submit = True
    list_before_template = "admin/jobs/deadletter/matching.html"
    list_defer = ("payload", "attempts", "remediation")
    search_fields = ("pk",)
    search_help_text = "Dead letter or job id, in full"
    empty_title = "Nothing has failed for good."
    empty_hint = "Jobs whose retries are used up, or that a provider refuses, come here."
    actions = ("requeue_selected", "discard_selected")
    actions_detail = ("requeue", "edit", "with_changes", "discard")

    matching = bulk.ALL_LETTERS
    everything = "every open dead letter of every project"

    requeue_selected, requeue = on_selected(REQUEUE), on_one(REQUEUE)
    edit, with_changes = on_one(EDIT), REQUEUE_WITH_CHANGES
    discard_selected, discard = on_selected(DISCARD), on_one(DISCARD)

    @admin.display(description="dead letter")
    def letter(self, letter: DeadLetter) -> SafeString:
        return formatting.short_id(letter.pk)

    @admin.display(description="error")
    def error(self, letter: DeadLetter) -> SafeString:
        message = masked_text(letter.error_message)
        return format_html(
            '<strong>{}</strong> <span class="qo-cut" title="{}">{}</span>',
            letter.error_code,
            message[:500],
            message[:120],
        )

    goes_to = column("target", _target.of)
    of_user = column("user", _user.of)
    of_batch = column("batch", _batch.of)

    def prepare_rows(self, rows: list[DeadLetter]) -> None:
        """Give each row the values that its columns show of its job, user and batch."""
        jobs = Job.objects.only("target", "user_id").in_bulk([row.job_id for row in rows])
        batches = dict(Batch.objects.filter(pk__in={row.batch_id for row in rows}).values_list("pk", "name"))
        labels: dict[str, dict[UUID, str]] = {}
        for project in {row.project_id for row in rows}:
            users = {jobs[row.job_id].user_id for row in rows if row.project_id == project}
            labels[project] = labels_of(project, {user for user in users if user})
        for row in rows:
            job = jobs[row.job_id]
            _target.set(row, name_of(row.service, job.target))
            _user.set(row, _shown(job.user_id, labels[row.project_id]))
            batch = _shown(row.batch_id, batches)
            _batch.set(row, formatting.link("jobs_batch", row.batch_id, batch) if row.batch_id else batch)

    @admin.display(description="attempts")
    def tries(self, letter: DeadLetter) -> int:
        return letter.retry_count + 1

    resolved = column("state", resolution_badge)

    def with_id(self, rows: QuerySet[DeadLetter], identifier: UUID) -> QuerySet[DeadLetter]:
        by_job = rows.filter(job_id=identifier)
        return by_job if by_job.exists() else rows.filter(pk=identifier)

    def wanted_by(self, request: HttpRequest) -> DeadLetterFilter:
        return bulk.wanted_by(request)

    def count_matching(self, action: Matching, wanted: DeadLetterFilter) -> Counted:
        return bulk.count_letters(wanted)

    def in_words(self, narrowed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the filters, a fingerprint together with the cause that it stands for."""
        alike = DeadLetter.objects.open().filter(fingerprint=narrowed.get("fingerprint"))
        one = alike.only("error_code", "kind", "service").first()
        cause = {"cause": f"{one.error_code} of {one.kind}, service {one.service}"} if one else {}
        return {**cause, **super().in_words(narrowed)}

    def get_urls(self) -> list[Any]:
        return [
            self.page_at("by-cause/", groups.groups, "groups"),
            self.page_at("export.csv", partial(bulk.export_matching, form="csv"), "csv"),
            self.page_at("export.ndjson", partial(bulk.export_matching, form="ndjson"), "ndjson"),
            *super().get_urls(),
        ]

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        shows_open = not request.GET.get("resolution") and not request.GET.get("q")
        return {
            **super().shown_above(request),
            "tools": self.tools_for(request) if shows_open else [],
            "may_export": shows_open and request.user.has_perm("jobs.export_deadletter"),
            "query": filters_of(request),
        }

    def shown_of(self, request: HttpRequest, row: DeadLetter) -> dict[str, Any]:
        return _page_of(row)


def _shown(identifier: UUID | None, names: Mapping[UUID, str]) -> str:
    """Return the name of an id, or the end of the id if it has no name."""
    return (names.get(identifier) or f"…{str(identifier)[-8:]}") if identifier else NOTHING


def _moment(text: Any) -> str:
    moment = parse_datetime(str(text or ""))
    return formatting.exact(moment) if moment else ""


def _page_of(letter: DeadLetter) -> dict[str, Any]:
    payload, payload_cut = pretty(letter.payload)
    attempts = letter.attempts if isinstance(letter.attempts, list) else []
    alike = f"{reverse('admin:jobs_deadletter_changelist')}?fingerprint={letter.fingerprint}"
    batch = Batch.objects.filter(pk=letter.batch_id).only("name").first() if letter.batch_id else None
    facts: list[tuple[str, Any]] = [
        ("Job", formatting.link("jobs_job", letter.job_id)),
        ("Batch", formatting.link("jobs_batch", batch.pk, batch) if batch else None),
        ("Project", formatting.link("tenancy_project", letter.project_id, letter.project_id)),
        ("Kind", letter.kind),
        ("Service", letter.service),
        ("Failed", formatting.ago(letter.created_at)),
        ("Retries", letter.retry_count),
        ("Crashes", letter.crash_count),
        ("Error class", letter.error_class),
        ("HTTP status", letter.http_status),
        ("Cause", format_html('<a class="qo-link" href="{}">all of this cause</a>', alike)),
        ("Resolved", formatting.ago(letter.resolved_at) if letter.resolved_at else None),
        ("By", people.name_of(letter.resolved_by) if letter.resolved_by else None),
        ("Note", masked_text(letter.note) or None),
        ("Requeued as", formatting.link("jobs_job", letter.requeued_as_id) if letter.requeued_as_id else None),
        ("Id", letter.pk),
    ]
    return {
        "title": f"Dead letter …{str(letter.pk)[-8:]}",
        "subtitle": letter.error_code,
        "letter": letter,
        "badge": resolution_badge(letter),
        "message": masked_text(letter.error_message),
        "remediation": masked_text(letter.remediation),
        "facts": [(label, value) for label, value in facts if value is not None],
        "attempts": [
            {
                "at": _moment(one.get("at")),
                "message": masked_text(str(one.get("message") or "")),
                "data": pretty(without_diagnostics(one))[0],
                "traceback": masked_text(str(one.get("traceback") or "")),
                "log": log_text(one),
            }
            for one in attempts
            if isinstance(one, dict)
        ],
        "payload": payload,
        "payload_cut": payload_cut,
    }
