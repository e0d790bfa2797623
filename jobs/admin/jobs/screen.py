"""Jobs: a list that opens quickly on millions of jobs, and the page that says what happened to one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.admin.filters import KindFilter, PriorityFilter, ServiceFilter, TagFilter
from jobs.admin.matching import Matching, MatchingMixin, parameters_of
from jobs.admin.states import JobStateFilter, state_badge, until_when
from jobs.aging import effective_priority
from jobs.features.forecast.reasons import foresee
from jobs.features.outages.outages import Key, count_held, count_held_of, out_keys, shown_state
from jobs.features.saved_filters.admin import SavedFiltersMixin
from jobs.lanes import name_of
from jobs.models import (
    WHOLE_PROJECT,
    Batch,
    BudgetWait,
    Dependency,
    Job,
    JobCount,
    PauseSwitch,
    ServiceBreaker,
    Tag,
)
from jobs.services.explain.position import aging_rules
from jobs.services.operate.job_filter import Counted, JobFilter, count_jobs, parse_job_filter
from jobs.services.operate.scheduled_jobs import count_scheduled, scheduled_of
from jobs.states import APART, OUTAGE, RUNNING, SCHEDULED, UNFINISHED, WAITING, JobState, Priority, told_apart
from queueops.core.values.tags import split_tags
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.filters import BatchFilter, ProjectFilter, UserFilter
from queueops.screens.paging import WINDOW, BoundedListMixin, CreatedFilter, as_uuid
from queueops.screens.verbs import ReadOnlyMixin, on_one, on_selected
from queueops.tenancy.models import Project

from . import form as job_form
from . import kinds
from .bulk import ALL_JOBS, PARAMETERS, states_of
from .page import page_of, result_file
from .verbs import AGAIN, CANCEL, GO_ON, PRIORITY, REQUEUE, RESET, RUN_NOW, SCHEDULE

COUNTED_FILTERS = ("state", "project", "batch_id", "before")
MAX_KEYED_PROJECTS = 1000  # a search by idempotency key reads the index once for each project

# For each state, the condition of the partial index that covers it: with this condition the planner may use the index.
INDEXED_STATES: dict[str, dict[str, Any]] = {
    **{state: {"status__in": sorted(RUNNING)} for state in RUNNING},
    JobState.RETRIED: {"scheduled_at__isnull": False},
    JobState.RATE_LIMITED: {},
}
_score = TypedAttribute[float]("score")
_state = TypedAttribute[str]("shown_state")
_held_by = TypedAttribute[SafeString | str]("waits_for")


@admin.register(Job)
class JobAdmin(ReadOnlyMixin, SavedFiltersMixin, MatchingMixin, BoundedListMixin, PageAdmin):
    list_display = (
        "name",
        "kind",
        "of_project",
        "state",
        "priority_now",
        "progress_shown",
        "waits_for",
        "tries",
        "age",
    )
    list_display_links = ("name",)
    list_filter = (
        JobStateFilter, KindFilter, ServiceFilter, PriorityFilter, ProjectFilter, UserFilter, BatchFilter, TagFilter,
        ("created_at", CreatedFilter),
    )  # fmt: skip
    list_filter_submit = True
    list_before_template = "admin/jobs/job/states.html"
    list_defer = ("payload", "result", "last_error_message")
    search_fields = ("pk",)  # not searched: any value makes Django show the box; see get_search_results
    search_help_text = "Job id, batch id or idempotency key, in full"
    empty_title = "No jobs yet."
    empty_hint = "Work that producers submit through the API appears here."
    actions = ("run_now_selected", "schedule_selected", "priority_selected", "requeue_selected", "reset_selected",
               "go_on_selected", "cancel_selected")  # fmt: skip
    actions_detail = ("go_on", "run_now", "schedule", "priority", "requeue", "reset", "cancel", "again", "with_changes")

    matching = ALL_JOBS
    everything = "every job of every project"

    cancel_selected, cancel = on_selected(CANCEL), on_one(CANCEL)
    run_now_selected, run_now = on_selected(RUN_NOW), on_one(RUN_NOW)
    schedule_selected, schedule = on_selected(SCHEDULE), on_one(SCHEDULE)
    reset_selected, reset = on_selected(RESET), on_one(RESET)
    priority_selected, priority = on_selected(PRIORITY), on_one(PRIORITY)
    requeue_selected, requeue = on_selected(REQUEUE), on_one(REQUEUE)
    again, with_changes = on_one(AGAIN), job_form.WITH_CHANGES
    go_on_selected, go_on = on_selected(GO_ON), on_one(GO_ON)

    @admin.display(description="job")
    def name(self, job: Job) -> SafeString:
        return formatting.short_id(job.pk)

    @admin.display(description="state")
    def state(self, job: Job) -> SafeString:
        return state_badge(_state.of(job))

    @admin.display(description="priority")
    def priority_now(self, job: Job) -> SafeString | str:
        if job.status not in WAITING:
            return job.priority
        tip = "Effective priority: the tier's base and what waiting has added"
        return format_html('{} <span class="qo-number" title="{}">{}</span>', job.priority, tip, _score.of(job))

    @admin.display(description="progress")
    def progress_shown(self, job: Job) -> SafeString | str:
        return formatting.bar(job.progress) if job.status == JobState.IN_PROGRESS else formatting.NOTHING

    waits_for = column("waits for", _held_by.of)

    @admin.display(description="attempts")
    def tries(self, job: Job) -> str:
        crashes = f", {job.crash_count} crashed" if job.crash_count else ""
        in_hand = job.status not in WAITING and job.started_at is not None
        return f"{job.retry_count + in_hand}{crashes}"

    def prepare_rows(self, rows: list[Job]) -> None:
        foresee(rows)
        rules, now = aging_rules(), timezone.now()
        paused = {(switch.scope, switch.key) for switch in PauseSwitch.objects.exclude(scope=PauseSwitch.Scope.BATCH)}
        out, dependants = out_keys(), _dependants(rows)
        held = [job.pk for job in rows if job.held]
        budgeted = set(BudgetWait.objects.filter(pk__in=held).values_list("pk", flat=True)) if held else set()
        for job in rows:
            waited = max(0.0, (now - job.eligible_since).total_seconds())
            _score.set(job, effective_priority(Priority(job.priority), waited, rules))
            _state.set(job, shown_state(job, out))
            _held_by.set(job, "budget" if job.pk in budgeted else _waits_for(job, paused, out, dependants))

    def wanted_by(self, request: HttpRequest) -> JobFilter:
        given = parameters_of(request, PARAMETERS)
        if given.get("state") in (OUTAGE, JobState.RATE_LIMITED):  # the list shows each as a state of its own
            given |= {"by_outage": given["state"] == OUTAGE, "state": JobState.RATE_LIMITED}
        elif given.get("state") in (SCHEDULED, JobState.QUEUED):
            given |= {"scheduled": given["state"] == SCHEDULED, "state": JobState.QUEUED}
        return parse_job_filter(given)

    def count_matching(self, action: Matching, wanted: JobFilter) -> Counted:
        return count_jobs(wanted, states_of(action))

    def rows_by_index(self, rows: QuerySet[Job], wanted: Mapping[str, str]) -> QuerySet[Job] | None:
        if as_uuid(wanted.get("batch_id", "")):
            return rows  # a batch has 100,000 jobs at most
        if tags := wanted.get("tags"):
            # The planner begins with the rarest tag. If every tag has many rows, a window of the newest jobs is read.
            few = min(Tag.objects.owners(name)[: WINDOW + 1].count() for name in split_tags(tags))
            return rows if few <= WINDOW else None
        state = wanted.get("state", "")
        if state in INDEXED_STATES and _jobs_in(state) <= WINDOW:
            return rows.filter(**INDEXED_STATES[state])
        if state == SCHEDULED and count_scheduled().jobs <= WINDOW:
            return rows
        return None

    def count_rows(self, wanted: Mapping[str, str]) -> int | None:
        state, batch = wanted.get("state"), as_uuid(wanted.get("batch_id", ""))
        # Counters keep counting ended jobs that retention has deleted.
        is_exact = state in {*UNFINISHED, SCHEDULED} or (batch and (not state or state in JobState))
        if not is_exact or not wanted.keys() <= set(COUNTED_FILTERS):
            return None
        counters = JobCount.objects.filter(batch_id=batch or WHOLE_PROJECT)
        if wanted.get("project"):
            counters = counters.filter(project_id=wanted["project"])
        if state in (SCHEDULED, JobState.QUEUED):
            part = scheduled_of(project_id=wanted.get("project"), batch_id=batch)
            queued = int(counters.aggregate(sum=Sum(JobState.QUEUED, default=0))["sum"])
            return None if part.more else part.jobs if state == SCHEDULED else max(0, queued - part.jobs)
        sums = counters.aggregate(**{f"sum_{name}": Sum(name, default=0) for name in JobState})
        if state == JobState.RATE_LIMITED and ServiceBreaker.objects.exclude(opened_at=None).exists():
            return None  # the counters do not count jobs that an outage holds apart from the others
        return int(sums[f"sum_{state}"]) if state else sum(sums.values())

    def window_source(self, wanted: Mapping[str, str]) -> QuerySet[Job]:
        user = as_uuid(wanted.get("user_id", ""))
        return Job.objects.filter(user_id=user) if user else Job.objects.all()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        chosen, identifier = request.GET.get("project"), as_uuid(term)
        projects = [chosen] if chosen else list(Project.objects.values_list("pk", flat=True)[:MAX_KEYED_PROJECTS])
        # Read the ids first: otherwise the planner might read the whole table, in the page's order, to find the key.
        ids = Job.objects.filter(project_id__in=projects, idempotency_key=term).order_by().ids()
        return queryset.filter(pk__in=[*ids, identifier] if identifier else ids), False

    def get_urls(self) -> list[Any]:
        return [
            self.page_at("new/", job_form.new_job, "new"),
            self.page_at("kinds/", kinds.kinds, "kinds"),
            self.page_at("kinds/<str:name>/", kinds.kind, "kind"),
            self.page_at("<uuid:pk>/result/", result_file, "result"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        identifier = as_uuid(request.GET.get("q", ""))
        if request.method == "GET" and identifier and self.has_view_permission(request):
            if Job.objects.filter(pk=identifier).exists():
                return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[identifier]))
            if Batch.objects.filter(pk=identifier).exists():
                return HttpResponseRedirect(f"{reverse('admin:jobs_job_changelist')}?batch_id={identifier}")
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        counters, counted = _counted_jobs(request)
        return {
            **super().shown_above(request),
            **(_state_chips(request, counters) if self.has_view_permission(request) else {}),
            "counted": counted,
            "may_submit": request.user.has_perm(job_form.SUBMIT),
            "tools": [] if request.GET.get("q") else self.tools_for(request),
        }

    def shown_of(self, request: HttpRequest, row: Job) -> dict[str, Any]:
        return page_of(row)


def _dependants(rows: list[Job]) -> set[UUID]:
    """The jobs and batches of the list that wait for others."""
    ids = {one for job in rows if job.held for one in (job.pk, job.batch_id) if one is not None}
    return set(Dependency.objects.filter(owner_id__in=ids).values_list("owner_id", flat=True)) if ids else set()


def _waits_for(job: Job, paused: set[tuple[str, str]], out: set[Key], dependants: set[UUID]) -> SafeString | str:
    if job.status not in WAITING:
        return formatting.NOTHING
    covering = {("project", job.project_id), ("service", job.service), ("kind", job.kind)} & paused
    if job.project_id != PauseSwitch.EXEMPT:
        covering |= {("global", "")} & paused
    if {job.pk, job.batch_id} & dependants:
        return "other jobs"
    if covering or job.held:
        return f"{next(iter(covering))[0]} paused" if covering else "paused"
    if (job.service, job.target, job.project_id) in out:
        return f"{name_of(job.service, job.target)} does not answer"
    if job.scheduled_at is not None:
        return formatting.ago(job.scheduled_at) if job.scheduled_at > timezone.now() else "due"
    return "its turn"


def _jobs_in(state: str) -> int:
    return int(JobCount.objects.filter(batch_id=WHOLE_PROJECT).aggregate(sum=Sum(state, default=0))["sum"])


def _counted_jobs(request: HttpRequest) -> tuple[QuerySet[JobCount], str]:
    """The counters of the list's batch, of its project or of all jobs, and words for what they count."""
    batch, project = as_uuid(request.GET.get("batch_id", "")), request.GET.get("project")
    uncounted = [name for name, value in request.GET.items() if value and name not in COUNTED_FILTERS]
    more = "; the other filters are not counted" if uncounted else ""
    if batch:
        return JobCount.objects.filter(batch_id=batch), f"Counts of this batch{more}."
    counters = JobCount.objects.filter(batch_id=WHOLE_PROJECT)
    if project:
        return counters.filter(project_id=project), f"Counts of project {project}{more}."
    return counters, f"Counts of all projects{more}." if more else ""


def _state_chips(request: HttpRequest, counters: QuerySet[JobCount]) -> dict[str, Any]:
    """States with their counts, from the counters that transitions keep; each is a link that narrows the list."""
    counts = counters.aggregate(**{state.value: Sum(state.value, default=0) for state in JobState})
    chosen, project, batch = (request.GET.get(name, "") for name in ("state", "project", "batch_id"))
    narrowed = Batch.objects.filter(pk=pk) if (pk := as_uuid(batch)) else None
    held = count_held(project or None) if narrowed is None else sum(count_held_of(narrowed).values())
    later = scheduled_of(project_id=project or None, batch_id=as_uuid(batch))
    chips = []
    for state, count in told_apart(counts, held_by_outage=held, scheduled=later.jobs).items():
        query = request.GET.copy()
        query.pop("before", None)
        query["state"] = state
        if chosen == state:
            query.pop("state")
        if state not in APART or count or chosen == state:
            chips.append(
                {
                    "badge": state_badge(state),
                    "count": f"{count:,}",
                    "chosen": chosen == state,
                    "href": f"?{query.urlencode()}",
                }
            )
    return {"state_chips": chips, "until_when": until_when(later)}
