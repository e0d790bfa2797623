"""
Admin screens of provider batches (their progress, the outcome of their lines, cancelling them) and of batch policies.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db.models import Q
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobs.admin.money import money_shown
from jobs.features.batch_lane import operate
from jobs.handlers.registry import all_handlers
from jobs.models import BatchPolicy, ProviderBatch, ProviderBatchLine
from queueops.audit import trail
from queueops.core.values.masking import masked_text
from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin, ServiceFormAdmin, without
from queueops.screens.columns import time_column
from queueops.screens.forms import ReasonForm
from queueops.screens.verbs import ReadOnlyMixin, Verb, actor_of, by_ids, on_one, on_selected

State = ProviderBatch.State
LineState = ProviderBatchLine.State
MAX_JOBS_SHOWN = 20
LOOKS: dict[str, tuple[str, str]] = {
    State.CREATING: ("grey", "upload"),
    State.OPEN: ("blue", "hourglass_top"),
    State.COLLECTING: ("blue", "download"),
    State.COMPLETED: ("green", "check"),
    State.EXPIRED: ("amber", "timer_off"),
    State.CANCELLED: ("grey", "block"),
    State.FAILED: ("red", "close"),
}


class SettleForm(ReasonForm):
    billed = forms.ChoiceField(
        label="Were these lines billed?",
        choices=[("no", "no: they cost nothing"), ("yes", "yes: as they are booked")],
        widget=forms.RadioSelect,
    )
    field_order = ("billed", "reason")

    def clean_billed(self) -> bool:
        return bool(self.cleaned_data["billed"] == "yes")


CANCEL = Verb(
    name="cancel",
    permission="jobs.steer_providerbatch",
    label="Cancel batch",
    done="cancelled",
    explains="The provider is told within seconds. What it has answered by then is kept and paid for; the other jobs "
    "go by the next batch where their deadline leaves time for one, and live where it does not.",
    icon="block",
    applies=lambda rows: rows.filter(state__in=ProviderBatch.UNFINISHED, cancel_requested_at=None),
    unfit="ended, or cancelled before",
    carry_out=by_ids(operate.cancel_provider_batches),
    form=ReasonForm,
    overrides=True,
)
SETTLE = Verb(
    name="settle",
    permission="jobs.steer_providerbatch",
    label="Settle what is unknown",
    done="settled",
    explains="Its lines without an answer may have been billed: what they can have cost at most is booked as unknown. "
    "Look at the provider's bill: was it billed or not?",
    icon="balance",
    applies=lambda rows: rows.filter(closed_at__isnull=False, unanswered__gt=0),
    unfit="without unanswered jobs",
    carry_out=by_ids(operate.settle_batches),
    form=SettleForm,
)
LOOK = Verb(
    name="look",
    permission="jobs.steer_providerbatch",
    label="Look now",
    done="looked at within seconds",
    explains="The provider is asked for its state now, and not at the next of the pauses that grow with its age.",
    icon="refresh",
    applies=lambda rows: rows.filter(state__in=ProviderBatch.UNFINISHED),
    unfit="ended before",
    carry_out=by_ids(lambda ids, **_: operate.look_now(ids)),
)


@admin.register(ProviderBatch)
class ProviderBatchAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("name", "stands", "project", "model", "far", "deadline", "since")
    list_filter = ("state", "service")
    search_fields = ("provider_id",)
    search_help_text = "A part of the provider's id"
    actions = ("cancel_selected", "look_selected", "settle_selected")
    actions_detail = ("cancel", "look", "settle")
    cancel_selected, cancel = on_selected(CANCEL), on_one(CANCEL)
    look_selected, look = on_selected(LOOK), on_one(LOOK)
    settle_selected, settle = on_selected(SETTLE), on_one(SETTLE)
    empty_title = "There are no batches at providers."
    empty_hint = "Jobs that are submitted with complete_by go by one where their deadline leaves time for it."
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "shown_state",
                    "provider_state",
                    "far",
                    "progressed",
                    "goes_live",
                    "deadline",
                    "cost",
                    "fault",
                    "cancel_reason",
                )
            },
        ),
        (
            "What it is of",
            {"fields": ("id", "provider_id", "project", "kind", "service", "model", "credential", "size")},
        ),
        (
            "Its lines",
            {
                "fields": (
                    "its_jobs",
                    "lines",
                    "succeeded",
                    "failed",
                    "handed_back",
                    "unanswered",
                    "dropped",
                    "unknown_lines",
                    "malformed_lines",
                )
            },
        ),
        ("At the provider", {"fields": ("kept", "creations", "faults")}),
        (
            "Times",
            {
                "fields": (
                    "since",
                    "submitted",
                    "looked",
                    "looks_next",
                    "ended",
                    "closed",
                )
            },
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: ProviderBatch | None = None) -> Any:
        untold = {"fault": obj and obj.error, "cancel_reason": obj and obj.cancel_reason}
        return without(self.fieldsets, {name for name, value in untold.items() if not value})

    def get_readonly_fields(self, request: HttpRequest, obj: ProviderBatch | None = None) -> tuple[str, ...]:
        return tuple(str(name) for _, options in self.fieldsets for name in options["fields"])

    @admin.display(description="batch")
    def name(self, batch: ProviderBatch) -> SafeString:
        return formatting.short_id(batch.pk)

    @admin.display(description="state", ordering="state")
    def shown_state(self, batch: ProviderBatch) -> SafeString:
        return formatting.badge(*LOOKS.get(batch.state, formatting.LATER), batch.get_state_display().lower())

    @admin.display(description="state", ordering="state")
    def stands(self, batch: ProviderBatch) -> SafeString:
        if not batch.error:
            return self.shown_state(batch)
        return format_html('{}<br><span class="qo-error">{}</span>', self.shown_state(batch), self.fault(batch))

    @admin.display(description="done")
    def far(self, batch: ProviderBatch) -> SafeString:
        without = f", {batch.unanswered:,} without an answer" if batch.unanswered else ""
        words = f"{batch.done:,} of {batch.lines:,}{without}"
        return formatting.bar(100 * min(1.0, batch.done / max(1, batch.lines)), words)

    @admin.display(description="last fault")
    def fault(self, batch: ProviderBatch) -> str:
        return masked_text(batch.error)[:300] or formatting.NOTHING

    @admin.display(description="jobs")
    def its_jobs(self, batch: ProviderBatch) -> SafeString:
        """The batch's first jobs, with their outcomes; jobs that it has completed come last."""
        lines = batch.all_lines.annotate(is_done=Q(state=LineState.SUCCEEDED)).order_by("is_done", "number")
        shown = [
            (formatting.link("jobs_job", one.job_id), f"line {one.number}", one.get_state_display().lower())
            for one in lines[:MAX_JOBS_SHOWN]
        ]
        more = batch.lines - len(shown)
        rest = f"and {more:,} more" if more > 0 else ""
        return format_html("{}{}", format_html_join("", "{} {}: {}<br>", shown), rest)

    @admin.display(description="size")
    def size(self, batch: ProviderBatch) -> str:
        return f"{batch.size_bytes:,} bytes of payloads, {batch.enqueued_tokens:,} tokens"

    @admin.display(description="cost")
    def cost(self, batch: ProviderBatch) -> str:
        return money_shown(operate.spent_on(batch)) or formatting.NOTHING

    @admin.display(description="files")
    def kept(self, batch: ProviderBatch) -> str:
        return ", ".join(f"{role}: {name}" for role, name in sorted(batch.files.items())) or formatting.NOTHING

    deadline = time_column("deadline", "complete_by", ordering="complete_by")

    @admin.display(description="the rest goes live")
    def goes_live(self, batch: ProviderBatch) -> SafeString | str:
        return formatting.ago(batch.live_at) if batch.is_unfinished else formatting.NOTHING

    since = time_column("collected", "created_at", ordering="created_at")
    submitted = time_column("handed over", "submitted_at")
    looked = time_column("looked at", "looked_at")

    @admin.display(description="looked at next")
    def looks_next(self, batch: ProviderBatch) -> SafeString | str:
        return formatting.ago(batch.look_at) if batch.is_unfinished else formatting.NOTHING

    progressed = time_column("last progress", "progressed_at")
    ended = time_column("ended at the provider", "ended_at")
    closed = time_column("all lines settled", "closed_at")


def _kinds_with_form() -> list[str]:
    return [one.kind for one in all_handlers() if one.batch is not None]


def _has_form(kind: str) -> None:
    if kind not in _kinds_with_form():
        raise ValidationError("No kind of this name has a batch form here: no job would go by its policy.")


@admin.register(BatchPolicy)
class BatchPolicyAdmin(ServiceFormAdmin):
    list_display = ("kind", "project", "via", "complete_within_hours")
    empty_title = "There are no batch policies."
    empty_hint = "Jobs go by a batch of their provider where their producer names a deadline."

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        found = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "kind" and found is not None:
            found.help_text = f"A kind that has a batch form: {', '.join(_kinds_with_form())}."
            found.validators.append(_has_form)
        if db_field.name == "complete_within_hours" and found is not None:
            found.validators.append(MinValueValidator(1))
        return found

    def save_model(self, request: HttpRequest, obj: BatchPolicy, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        obj.save()
        after = {"via": obj.via, "complete_within_hours": obj.complete_within_hours}
        trail.record(actor=actor_of(request), action="save_batch_policy", target=f"batch policy {obj}", after=after)

    def delete_model(self, request: HttpRequest, obj: BatchPolicy) -> None:
        before = {"via": obj.via, "complete_within_hours": obj.complete_within_hours}
        trail.record(actor=actor_of(request), action="delete_batch_policy", target=f"batch policy {obj}", before=before)
        obj.delete()
