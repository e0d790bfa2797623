"""Batches with their progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobs.admin.batches.links import batch_links
from jobs.admin.dead_letters.groups import shown_causes
from jobs.admin.filters import TagFilter, tags_shown
from jobs.admin.money import money_shown
from jobs.admin.pictures import picture_of
from jobs.admin.states import state_badge, until_when
from jobs.door.batches import told_of_door
from jobs.features.batch_guards import guards
from jobs.features.forecast.reasons import holds_of_batch
from jobs.features.saved_filters.admin import SavedFiltersMixin
from jobs.models import Batch, BulkOperation, Dependency, Job, OnFailure, Tag
from jobs.services.explain.batch_table import CONTENT_TYPES, Table, write_table
from jobs.services.explain.snapshots import BatchSnapshot, batch_snapshot, batch_snapshots
from jobs.services.explain.verdicts import OPEN, narrowed
from jobs.states import APART, SHOWN, SHOWN_VERDICTS, BatchVerdict, GuardState, JobState
from queueops.audit import trail
from queueops.core.errors import QueueOpsError
from queueops.core.values.masking import masked
from queueops.core.web.downloads import download, pieces_of
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.filters import Choice, ProjectFilter
from queueops.screens.paging import BoundedListMixin, CreatedFilter, IdSearchMixin, as_uuid
from queueops.screens.verbs import ReadOnlyMixin, actor_of, on_one, on_selected
from queueops.tenancy.people import name_of
from queueops.tenancy.user_labels import users_shown
from ratelimits.limits.catalogue import rules
from ratelimits.money.reports import saved_on_batch, spent_on_batch

from .verbs import CANCEL, GO_ON, PAUSE, PRIORITY, RESUME, RETRY_FAILED

MAX_CAUSES_OF_A_BATCH = 5
MAX_OPERATIONS = 50
_snapshot = TypedAttribute[BatchSnapshot]("snapshot")
# People's bookmarks still have these values of the `state` filter. Each stands for the verdicts beside it.
SAVED_BEFORE: dict[str, Sequence[str]] = {
    "paused": (BatchVerdict.HELD,),
    "open": OPEN,
    "ended": [verdict for verdict in BatchVerdict if verdict not in OPEN],
}


class VerdictFilter(Choice):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(verdict, SHOWN_VERDICTS[verdict].words) for verdict in BatchVerdict]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Batch]) -> QuerySet[Batch]:
        chosen = self.value()
        if not chosen:
            return queryset
        wanted = SAVED_BEFORE.get(chosen, (chosen,))
        if wanted[0] not in BatchVerdict:
            raise IncorrectLookupParameters(chosen)
        return narrowed(queryset, wanted)


def rate_of(batch: Batch) -> str:
    rate = batch.rate_now
    return f"{rate:,.1f} jobs/s" if rate and not batch.finished_at else formatting.NOTHING


@admin.register(Batch)
class BatchAdmin(ReadOnlyMixin, SavedFiltersMixin, IdSearchMixin, BoundedListMixin, PageAdmin):
    list_display = ("batch", "of_project", "state", "progress", "failed", "rate", "eta", "age")
    list_filter = (VerdictFilter, ProjectFilter, TagFilter, ("created_at", CreatedFilter))
    list_filter_submit = True
    list_before_template = "admin/jobs/batch/tools.html"
    search_fields = ("pk",)
    search_help_text = "Batch id, in full"
    empty_title = "No batches yet."
    empty_hint = "Jobs that are submitted together appear here as one batch."
    actions = (
        "pause_selected",
        "resume_selected",
        "priority_selected",
        "retry_failed_selected",
        "go_on_selected",
        "cancel_selected",
    )
    actions_detail = ("go_on", "pause", "resume", "priority", "retry_failed", "cancel")

    go_on_selected, go_on = on_selected(GO_ON), on_one(GO_ON)
    pause_selected, pause = on_selected(PAUSE), on_one(PAUSE)
    resume_selected, resume = on_selected(RESUME), on_one(RESUME)
    cancel_selected, cancel = on_selected(CANCEL), on_one(CANCEL)
    priority_selected, priority = on_selected(PRIORITY), on_one(PRIORITY)
    retry_failed_selected, retry_failed = on_selected(RETRY_FAILED), on_one(RETRY_FAILED)

    def audit_targets(self, row: Batch) -> list[str]:
        """The batch's pauses, and the operations over its jobs."""
        operations = BulkOperation.objects.filter(parameters__filter__batch_id=str(row.pk)).order_by("-pk")
        return [
            f"batch {row.pk}",
            *(f"bulk operation {one}" for one in operations.values_list("pk", flat=True)[:MAX_OPERATIONS]),
        ]

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        return (*self.list_display, "in_row") if request.user.has_perm(PAUSE.permission) else self.list_display

    @admin.display(description="")
    def in_row(self, batch: Batch) -> SafeString | str:
        if batch.finished_at:
            return ""
        verb = RESUME if batch.paused else PAUSE
        address = reverse(f"admin:jobs_batch_{verb.name}", args=[batch.pk])
        return format_html('<a class="qo-link" href="{}">{}…</a>', address, verb.label)

    @admin.display(description="batch")
    def batch(self, batch: Batch) -> SafeString:
        return format_html("{} {} {}", batch.name, formatting.short_id(batch.pk), _tags(batch.tags))

    @admin.display(description="state")
    def state(self, batch: Batch) -> SafeString:
        return batch_badge(_snapshot.of(batch))

    @admin.display(description="progress")
    def progress(self, batch: Batch) -> SafeString:
        return progress_of(_snapshot.of(batch))

    @admin.display(description="failed")
    def failed(self, batch: Batch) -> SafeString | str:
        failed = _snapshot.of(batch).counts[JobState.FAILED]
        return format_html('<span class="qo-bad">{}</span>', f"{failed:,}") if failed else formatting.NOTHING

    rate = column("rate", rate_of)

    @admin.display(description="ends")
    def eta(self, batch: Batch) -> SafeString | str:
        snapshot = _snapshot.of(batch)
        return _ends(snapshot) or until_when(snapshot.scheduled) or formatting.NOTHING

    def prepare_rows(self, rows: list[Batch]) -> None:
        snapshots = batch_snapshots(rows)
        tags = Tag.objects.of([batch.pk for batch in rows])
        for batch in rows:
            batch.tags = tags.get(batch.pk, [])
            _snapshot.set(batch, snapshots[batch.pk])

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        return {**super().shown_above(request), "may_upload": request.user.has_perm("jobs.add_upload")}

    def get_urls(self) -> list[Any]:
        return [self.page_at("<uuid:pk>/results.<str:form>", BatchAdmin.table, "results"), *super().get_urls()]

    def table(self, request: HttpRequest, pk: UUID, form: str) -> HttpResponseBase:
        """Answer with all jobs of a batch as a file: payloads beside results, with secrets masked."""
        batch = Batch.objects.filter(pk=pk).only("project_id").first()
        if batch is None or form not in CONTENT_TYPES:
            raise Http404
        if not request.user.has_perm("jobs.view_job"):
            raise PermissionDenied
        with transaction.atomic():
            trail.record(
                actor=actor_of(request),
                action="export_results",
                target=f"batch {pk}",
                after={"form": form},
                moved=0,
                project_id=batch.project_id,
            )
        table = Table(form, with_input=True, shown=masked)
        try:
            file = write_table(Job.objects.filter(batch_id=pk), pk, table)
        except QueueOpsError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(reverse("admin:jobs_batch_change", args=[pk]))
        return download(request, pieces_of(file), CONTENT_TYPES[table.form], f"batch-{str(pk)[-12:]}.{form}")

    def shown_of(self, request: HttpRequest, row: Batch) -> dict[str, Any]:
        shown = _page_of(row)
        if request.user.has_perm("jobs.view_deadletter"):
            shown |= {
                "groups": shown_causes({"batch_id": str(row.pk)}, most=MAX_CAUSES_OF_A_BATCH),
                "may_requeue": request.user.has_perm("jobs.requeue_deadletter"),
                "may_discard": request.user.has_perm("jobs.discard_deadletter"),
            }
        return shown


def batch_badge(snapshot: BatchSnapshot) -> SafeString:
    """The batch's verdict, and what holds it, if anything does."""
    shown = SHOWN_VERDICTS[snapshot.verdict]
    badge = formatting.badge(shown.tone, shown.sign, shown.words)
    if snapshot.held_by is None:
        return badge
    return format_html('{} <span class="qo-muted">{}</span>', badge, snapshot.held_by)


def progress_of(snapshot: BatchSnapshot) -> SafeString:
    everything = sum(snapshot.counts.values())
    return formatting.bar(snapshot.progress, f"{snapshot.finished:,} of {everything:,}")


def _ends(snapshot: BatchSnapshot) -> SafeString | str:
    """When the batch ended or should end; empty: nothing is known."""
    at = snapshot.batch.finished_at or snapshot.eta
    if at is None or snapshot.eta_earliest is None:
        return formatting.ago(at) if at else ""
    return format_html("{}; at its speed so far {}", formatting.ago(at), formatting.ago(snapshot.eta_earliest))


def _page_of(batch: Batch) -> dict[str, Any]:
    snapshot = batch_snapshot(batch)
    everything = sum(snapshot.counts.values()) or 1
    jobs = f"{reverse('admin:jobs_job_changelist')}?batch_id={batch.pk}"
    return {
        "title": batch.name or f"Batch …{str(batch.pk)[-8:]}",
        "subtitle": batch.project_id,
        "batch": batch,
        "badge": batch_badge(snapshot),
        "progress_bar": progress_of(snapshot),
        "rate": rate_of(batch) if batch.rate_now else "",
        "ends": _ends(snapshot),
        "until_when": until_when(snapshot.scheduled),
        "created": formatting.ago(batch.created_at),
        "who": name_of(batch.submitted_by),
        "total": f"{batch.total:,}",
        "money": money_shown(spent_on_batch(batch.pk), saved_on_batch(batch.pk)),
        "tags": tags_shown("jobs_batch", Tag.objects.of([batch.pk]).get(batch.pk, ())),
        "whose": users_shown(batch.project_id, [batch.user_id])[batch.user_id] if batch.user_id else None,
        "after": _after(batch),
        "guard": _guard(batch),
        "stopped": guards.told(batch.guard) if batch.guard and batch.guard_state == GuardState.STOPPED else "",
        "callback": _callback(batch),
        "door": told_of_door(batch.pk),
        "known": format_html_join(", ", "{}", ((one,) for one in batch_links(batch.known_batches).values())),
        "picture": picture_of(Job.objects.filter(batch_id=batch.pk)),
        "holds": [] if batch.finished_at else _holds(batch),
        "jobs_href": jobs,
        "letters_href": f"{reverse('admin:jobs_deadletter_changelist')}?batch_id={batch.pk}",
        "states": [
            {
                "name": name,
                "badge": state_badge(name),
                "tone": SHOWN[name].tone,
                "count": count,
                "shown": f"{count:,}",
                "percent": round(100 * count / everything, 2),
                "href": f"{jobs}&state={name}",
            }
            for name, count in snapshot.apart.items()
            if count or name not in APART
        ],
    }


def _tags(names: Iterable[str]) -> SafeString | str:
    return format_html_join(" ", '<span class="qo-tag">{}</span>', ((name,) for name in names))


def _after(batch: Batch) -> SafeString | str:
    """The jobs and batches that the batch was to wait for, and whether it still waits; empty: none."""
    if batch.after is None:
        return ""
    ids = [UUID(one) for one in batch.after["after"]]
    batches = batch_links(Batch.objects.filter(pk__in=ids).values_list("pk", flat=True))
    links = [batches.get(one) or formatting.link("jobs_job", one) for one in ids]
    waits = Dependency.objects.filter(owner_id=batch.pk).exists()
    standing = "it waits" if waits else "that is over"
    failing = OnFailure(batch.after["on_failure"]).label
    return format_html(
        "{}; if one fails, {}; {}", format_html_join(", ", "{}", ((one,) for one in links)), failing, standing
    )


def _guard(batch: Batch) -> str:
    """Say when the batch stops itself, and whether it has stopped; empty: it never stops itself."""
    if batch.guard is None:
        return ""
    words = {
        GuardState.TRIAL: "they are tried now",
        GuardState.PASSED: "they did well enough",
        GuardState.STOPPED: "it has",
        GuardState.WENT_ON: "it was told to go on",
    }
    first, percent, state = batch.guard["first"], batch.guard["percent"], GuardState(batch.guard_state)
    return f"at {percent} % of its first {first:,} jobs, failed for good with one code; {words[state]}"


def _callback(batch: Batch) -> SafeString | str:
    """The job that the batch names in on_finish, with its state while the job is kept; empty: it names no job."""
    if batch.on_finish_job is None:
        return ""
    job = Job.objects.filter(pk=batch.on_finish_job).only("kind", "status").first()
    if job is None:
        return "its callback was carried out and is deleted"
    return format_html("{} {}", formatting.link("jobs_job", job.pk, job.kind), state_badge(job.status))


def _holds(batch: Batch) -> list[dict[str, Any]]:
    """The reasons why the batch's jobs wait, in the words of the jobs' own pages."""
    limits = {rule.name: formatting.address("ratelimits_limit", rule.id) for rule in rules()}
    holds = holds_of_batch(batch.pk)
    users = users_shown(batch.project_id, [user for hold in holds if (user := as_uuid(hold.user))])
    return [
        {
            "jobs": f"{'> ' if hold.more else ''}{hold.jobs:,}",
            "user": users.get(as_uuid(hold.user) or batch.pk) or hold.user or formatting.NOTHING,
            "reasons": [{"text": reason.text, "limit_href": limits.get(reason.limit or "")} for reason in hold.reasons],
            "last": formatting.ago(hold.last_starts_at),
        }
        for hold in holds
    ]
