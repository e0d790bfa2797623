"""The admin screen of bulk operations: their progress, and stopping or continuing an operation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from jobs.models import BulkOperation, CanaryState
from jobs.services.operate import bulk_run
from jobs.services.operate.bulk_outcome import canary_outcome, failed_again, requeue_outcome
from queueops.core.values.masking import masked, masked_text
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.formatting import duration
from queueops.screens.forms import OptionalReasonForm
from queueops.screens.paging import BoundedListMixin
from queueops.screens.verbs import ReadOnlyMixin, Verb, VerbOutcome, on_one, on_selected
from queueops.tenancy.people import name_of

from .matching import words_of as words_of_count

MAX_FOLLOWED = 20_000  # the page tells the outcome of so many requeued jobs, the newest
MAX_FAILED_NAMED = 20  # the page names so many failed rows, the newest
MAX_ERROR_LENGTH = 150
SLOW = 10  # rows a minute; a slower pace is shown as the time for one row
COLOURS = {"running": "info", "done": "success", "cancelled": "warning", "failed": "danger"}


def _stop(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    running = set(BulkOperation.objects.filter(pk__in=ids, status="running").values_list("pk", flat=True))
    ended = [bulk_run.cancel_bulk(one, actor=actor, reason=reason) for one in ids if one in running]
    stopped = sum(operation.status == BulkOperation.Status.CANCELLED for operation in ended)
    return VerbOutcome(stopped, len(ids) - stopped)


STOP = Verb(
    name="stop",
    permission="jobs.change_bulkoperation",
    label="Stop",
    done="stopped",
    explains="It ends after the rows in hand. What it has done stays done; the rest is left alone.",
    icon="stop_circle",
    applies=lambda rows: rows.filter(status="running"),
    unfit="not running",
    carry_out=_stop,
    form=OptionalReasonForm,
    overrides=True,
)


def _go_on(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    begun = [operation for one in ids if (operation := bulk_run.go_on(one, actor=actor, reason=reason))]
    href = reverse("admin:jobs_bulkoperation_change", args=[begun[0].pk]) if len(begun) == 1 else None
    return VerbOutcome(len(begun), len(ids) - len(begun), goes_to=href)


GO_ON = Verb(
    name="go-on",
    permission="jobs.change_bulkoperation",
    label="Go on",
    done="taken up by a new operation",
    explains="A new operation does what this one left: the same rows, at the same pace, with the same bound of"
    " failures. Rows that have come since are not among them.",
    icon="play_arrow",
    applies=lambda rows: rows.filter(status__in=["cancelled", "failed"]),
    unfit="not stopped",
    carry_out=_go_on,
    form=OptionalReasonForm,
)


def words_of(operation: BulkOperation) -> str:
    return operation.action.replace("_", " ").capitalize()


def progress_of(operation: BulkOperation) -> SafeString:
    looked_at = operation.done + operation.skipped
    total = max(operation.total, looked_at)
    percent = 100.0 if not total else 100 * looked_at / total
    return formatting.bar(percent, f"{looked_at:,} of {words_of_count(total, operation.total_is_least)}")


@admin.register(BulkOperation)
class BulkOperationAdmin(ReadOnlyMixin, BoundedListMixin, PageAdmin):
    list_display = ("action_shown", "status_shown", "progress", "done", "skipped", "who", "began")
    list_filter = ("status", "action")
    list_defer = ("parameters",)
    actions = ("stop_selected",)
    actions_detail = ("stop", "go_on")

    stop_selected, stop = on_selected(STOP), on_one(STOP)
    go_on = on_one(GO_ON)

    action_shown = column("action", words_of)

    @display(description="status", label=COLOURS)  # type: ignore[untyped-decorator]
    def status_shown(self, operation: BulkOperation) -> str:
        return operation.status

    progress = column("progress", progress_of)
    who = column("by", lambda operation: name_of(operation.actor))
    began = time_column("began", "created_at")

    def shown_of(self, request: HttpRequest, row: BulkOperation) -> dict[str, Any]:
        return {
            "title": words_of(row),
            "subtitle": row.status,
            "operation": row,
            "error": masked_text(row.error),
            "reason": masked_text(row.reason),
            "is_running": row.status == BulkOperation.Status.RUNNING,
            "progress_bar": progress_of(row),
            "total": words_of_count(row.total, row.total_is_least),
            "done": f"{row.done:,}",
            "skipped": f"{row.skipped:,}",
            "pace": pace_of(row),
            "canary": canary_of(row),
            "outcome": outcome_of(row),
            "ends": ends_of(row),
            "who": name_of(row.actor),
            "began": formatting.ago(row.created_at),
            "ended": formatting.ago(row.finished_at),
            "parameters": json.dumps(masked(row.parameters), indent=2, ensure_ascii=False)[:20_000],
        }


def outcome_of(operation: BulkOperation) -> dict[str, Any] | None:
    """The outcome of the jobs that a requeue made; None for other operations."""
    if operation.action != "requeue_dead_letters" or not operation.done:
        return None
    outcome = requeue_outcome(operation.pk, newest=MAX_FOLLOWED)
    parts = (
        ("green", "completed", outcome.completed),
        ("red", "failed again", outcome.failed),
        ("grey", "not ended", outcome.unfinished),
    )
    return {
        "parts": [
            {"tone": tone, "words": words, "count": count, "shown": f"{count:,}"} for tone, words, count in parts
        ],
        "cancelled": outcome.ended - outcome.completed - outcome.failed,
        "is_cut": outcome.requeued == MAX_FOLLOWED,
        "followed": outcome.requeued,
        "failed_again": [
            {
                "href": reverse("admin:jobs_deadletter_change", args=[letter.pk]),
                "name": f"…{str(letter.job_id)[-8:]}",
                "error": f"{letter.error_code} {masked_text(letter.error_message)[:MAX_ERROR_LENGTH]}",
                "state": letter.resolution or "open",
            }
            for letter in (failed_again(operation.pk, most=MAX_FAILED_NAMED) if outcome.failed else ())
        ],
    }


def canary_of(operation: BulkOperation) -> str:
    """Describe the progress of the canary, the rows that go first; empty: the operation has no canary."""
    if operation.canary is None:
        return ""
    found = canary_outcome(operation)
    failed = f", {found.failed:,} failed with {found.code}" if found.failed else ""
    state = {
        CanaryState.TRYING: "the rest waits for them",
        CanaryState.PASSED: "the rest follows",
        CanaryState.FAILED: "the rest was left alone: Go on, or leave it so",
    }
    going = f"{found.jobs:,} of {operation.canary:,} went, {found.ended:,} have ended{failed}"
    return f"{going}; {state[CanaryState(operation.canary_state)]}"


def pace_of(operation: BulkOperation) -> str:
    if operation.rows_per_minute is None:
        return "as fast as it goes"
    rate = operation.rows_per_minute
    return f"at most {rate:,.0f} rows a minute" if rate >= SLOW else f"a row every {duration(60 / rate)}"


def ends_of(operation: BulkOperation) -> SafeString | str:
    """When the operation should be through at its pace; empty once it has ended or while the total is not known."""
    left = operation.total - operation.done - operation.skipped
    if operation.status != BulkOperation.Status.RUNNING or not operation.rows_per_minute or operation.total_is_least:
        return ""
    begins = max(timezone.now(), operation.next_at or timezone.now())
    return formatting.ago(begins + timedelta(minutes=max(0, left) / operation.rows_per_minute))
