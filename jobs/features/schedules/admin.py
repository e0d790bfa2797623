"""The admin screen of schedules: jobs submitted again and again, their next fires, and the last outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.forms import Script
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from jobs.features.schedules import schedules
from jobs.features.schedules.errors import BadSchedule
from jobs.features.schedules.fire_schedules import jobs_now
from jobs.models import Schedule, ScheduleFire
from queueops.core.postgres.zones import known_zone, zone_of
from queueops.core.values.masking import masked, pretty, unmasked
from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin, without
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import time_column
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import CheckedForm, OptionalReasonForm, optional_reason
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, on_one, on_selected

LAST_FIRES = 10
_last_fire = TypedAttribute[ScheduleFire | None]("last_fire")
FIRST_JOB = [{"kind": "http.request", "payload": {"method": "GET", "url": "https://api.example.org/"}}]
Outcome = ScheduleFire.Outcome
LOOKS = {
    Outcome.SUBMITTED: ("green", "check"),
    Outcome.REFUSED: ("red", "block"),
    Outcome.SKIPPED: ("grey", "skip_next"),
}


def _each(act: Callable[..., object]) -> Callable[..., VerbOutcome]:
    def carry_out(ids: Sequence[UUID], **told: Any) -> VerbOutcome:
        for row in Schedule.objects.filter(pk__in=ids):
            act(row.pk, project_id=row.project_id, **told)
        return VerbOutcome(len(ids))

    return carry_out


PAUSE = Verb(
    name="pause",
    permission="jobs.steer_schedule",
    label="Pause",
    done="paused",
    explains="A paused schedule does not fire until it is resumed, and nothing is made up for then. What it has "
    "submitted goes on.",
    icon="pause",
    applies=lambda rows: rows.filter(paused=False),
    unfit="paused before",
    carry_out=_each(schedules.pause_schedule),
    form=OptionalReasonForm,
)
RESUME = Verb(
    name="resume",
    permission="jobs.steer_schedule",
    label="Resume",
    done="resumed",
    explains="It fires from now on. What was due while it was paused is not made up for.",
    icon="play_arrow",
    applies=lambda rows: rows.filter(paused=True),
    unfit="not paused",
    carry_out=_each(schedules.resume_schedule),
    form=OptionalReasonForm,
)
RUN = Verb(
    name="run",
    permission="jobs.steer_schedule",
    label="Run now",
    done="run",
    explains="Its jobs are submitted at once, also while it is paused. Its next fire stays as it is.",
    icon="bolt",
    carry_out=_each(schedules.run_schedule),
    form=OptionalReasonForm,
)


class JobScheduleForm(CheckedForm):
    jobs = forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 12, "class": "qo-code", "spellcheck": "false"}),
        help_text="A JSON list of jobs, each as in its submission, without times and idempotency keys. One is "
        "submitted as a job, several as a batch. A masked secret that you leave stays as it was.",
    )
    reason = optional_reason()

    class Meta:
        model = Schedule
        fields = ("project", *schedules.FIGURES)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stored_jobs = jobs_now(self.instance)
        shown = masked(self.stored_jobs) if self.instance.project_id else FIRST_JOB
        self.initial["jobs"] = json.dumps(shown, indent=2, ensure_ascii=False)

    def clean_jobs(self) -> Any:
        try:
            given = json.loads(self.cleaned_data["jobs"])
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"Not JSON: {error}") from None
        return unmasked(given if isinstance(given, list) else [given], self.stored_jobs)

    def check_row(self) -> None:
        """Show each fault of the jobs at their field."""
        try:
            schedules.check_schedule(self.instance, stored=False)
        except BadSchedule as error:
            for path, faults in error.fields.items():
                field, _, inner = path.partition(".")
                where = f"{inner}: " if inner else ""
                self.add_error(field, [f"{where}{fault}" for fault in faults])


@admin.register(Schedule)
class JobScheduleAdmin(ServiceFormAdmin):
    form = JobScheduleForm
    list_display = ("name", "project", "when", "stands", "next_at", "last", "submits")
    list_display_links = ("name",)
    list_select_related = ("project",)
    sortable_by = ()
    list_filter = (ProjectFilter, "paused")
    list_filter_submit = True
    search_fields = ("name",)
    search_help_text = "A part of its name"
    actions = ("pause_selected", "resume_selected", "run_selected")
    actions_detail = ("run", "pause", "resume")
    pause_selected, pause = on_selected(PAUSE), on_one(PAUSE)
    resume_selected, resume = on_selected(RESUME), on_one(RESUME)
    run_selected, run = on_selected(RUN), on_one(RUN)
    readonly_fields = ("shown_jobs",)
    fixed_fields = ("project",)
    empty_title = "There are no schedules."
    empty_hint = "A schedule submits the same job or batch whenever it is due, such as every working day at 02:30."
    change_form_outer_before_template = "admin/jobs/schedule/fires.html"
    fieldsets = (
        (None, {"fields": ("project", "name")}),
        ("When", {"fields": ("cron", "time_zone", "jitter_seconds", "ends_at")}),
        ("What", {"fields": ("jobs", "shown_jobs")}),
        ("When nobody was there to make it", {"fields": ("missed", "most_missed")}),
        ("Why", {"fields": ("reason",)}),
    )

    class Media:
        js = (Script("jobs/schedule.js", type="module"),)

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Sequence[Any]:
        unneeded = "shown_jobs" if self.may_save(request, obj) else "jobs"
        return without(super().get_fieldsets(request, obj), {unneeded})

    def prepare_rows(self, rows: list[Schedule]) -> None:
        last = schedules.last_fires([row.pk for row in rows])
        for row in rows:
            _last_fire.set(row, last.get(row.pk))

    def shown_of(self, request: HttpRequest, row: Schedule) -> dict[str, Any]:
        zone = zone_of(row.time_zone)
        return {
            "knows_zone": known_zone(row.time_zone) is not None,
            "schedule": row,
            "badge": self.stands(row),
            "next_at": self.next_at(row),
            "next_due": [
                (fire.due_at.isoformat(), f"{fire.due_at.astimezone(zone):%a %Y-%m-%d %H:%M %Z}")
                for fire in schedules.next_fires(row)
            ],
            "fires": [
                (formatting.ago(fire.due_at), _outcome(fire), _made(fire), fire.left_out)
                for fire in row.fires.order_by("-due_at")[:LAST_FIRES]
            ],
        }

    def save_model(self, request: HttpRequest, obj: Schedule, form: JobScheduleForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        figures = {name: form.cleaned_data[name] for name in schedules.FIGURES}
        told = {"actor": actor_of(request), "reason": form.cleaned_data.get("reason", "")}
        saved = schedules.save_schedule(obj.pk if change else None, figures, project_id=obj.project_id, **told)
        obj.pk = saved.pk

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        schedules.delete_schedule(obj.pk, project_id=obj.project_id, actor=actor_of(request))

    @admin.display(description="fires")
    def when(self, row: Schedule) -> SafeString:
        return format_html('<span><code>{}</code> <span class="qo-muted">{}</span></span>', row.cron, row.time_zone)

    @admin.display(description="is")
    def stands(self, row: Schedule) -> SafeString:
        if row.paused:
            return formatting.badge("grey", "pause", "paused")
        if row.next_due_at is None:
            return formatting.badge("grey", "event_busy", "over")
        if known_zone(row.time_zone) is None:
            return formatting.badge("red", "block", "unknown time zone")
        if row.refused_in_a_row:
            return formatting.badge("red", "block", "refused")
        return formatting.badge("green", "event_repeat", "on")

    next_at = time_column("next", "next_fire_at")

    @admin.display(description="last")
    def last(self, row: Schedule) -> SafeString | str:
        fire = _last_fire.of(row)
        if fire is None:
            return formatting.NOTHING
        return format_html("<span>{} {}</span>", _outcome(fire), formatting.ago(fire.due_at))

    @admin.display(description="submits")
    def submits(self, row: Schedule) -> str:
        if isinstance(row.jobs, str):  # a text stands in for what is encrypted
            return row.jobs
        kinds = sorted({str(job.get("kind")) for job in row.jobs})
        return kinds[0] if len(row.jobs) == 1 else f"{len(row.jobs):,} jobs: {', '.join(kinds)}"

    @admin.display(description="jobs")
    def shown_jobs(self, row: Schedule) -> SafeString:
        return format_html("<pre>{}</pre>", pretty(row.jobs)[0])


def _outcome(fire: ScheduleFire) -> SafeString:
    return formatting.badge(*LOOKS[Outcome(fire.outcome)], fire.outcome)


def _made(fire: ScheduleFire) -> SafeString | str:
    if fire.job_id:
        return formatting.link("jobs_job", fire.job_id)
    if fire.batch_id:
        return formatting.link("jobs_batch", fire.batch_id)
    return f"{fire.error_message} ({fire.error_code})" if fire.error_code else formatting.NOTHING
