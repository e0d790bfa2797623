"""The screen of services that do not answer."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import F
from django.urls import reverse
from unfold.decorators import display

from jobs.features.outages import outages
from jobs.models import ServiceBreaker
from queueops.core.values.masking import masked_text
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import time_column
from queueops.screens.forms import OptionalReasonForm, ReasonForm
from queueops.screens.verbs import ReadOnlyMixin, Verb, VerbOutcome, by_ids, on_one, on_selected


def _close(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    closed = outages.close_breakers(ids, actor=actor, reason=reason)
    return VerbOutcome(closed, len(ids) - closed, goes_to=reverse("admin:jobs_servicebreaker_changelist"))


CLOSE = Verb(
    name="close",
    permission="jobs.steer_servicebreaker",
    label="Close breaker",
    done="closed",
    explains="All jobs that wait for it go out at once, as if it answered. If it does not, it opens again by as many "
    "failures as the first time.",
    icon="play_arrow",
    applies=lambda rows: rows.exclude(opened_at=None),
    unfit="not open",
    carry_out=_close,
    form=ReasonForm,
    overrides=True,
)
PROBE = Verb(
    name="probe",
    permission="jobs.steer_servicebreaker",
    label="Probe now",
    done="probed",
    explains="One waiting job goes out within a second or two, unless one is under way. If it is answered, all go on.",
    icon="network_ping",
    applies=lambda rows: rows.exclude(opened_at=None),
    unfit="not open",
    carry_out=by_ids(outages.probe_now),
    form=OptionalReasonForm,
)


@admin.register(ServiceBreaker)
class ServiceBreakerAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("target_shown", "project_id", "health", "holds", "failures", "open_since", "next_probe", "probes",
                    "last_error_shown")  # fmt: skip
    ordering = (F("opened_at").desc(nulls_last=True), "service", "target", "project_id")
    actions = ("close_selected", "probe_selected")
    actions_detail = ("close", "probe")
    empty_title = "Every service answers."
    empty_hint = "A service that stops answering appears here, once a project; its work waits unharmed."
    fields = ("target_shown", "project_id", "health", "holds", "failures", "open_since", "next_probe", "probes",
              "last_error_shown")  # fmt: skip
    readonly_fields = fields

    close_selected, close = on_selected(CLOSE), on_one(CLOSE)
    probe_selected, probe = on_selected(PROBE), on_one(PROBE)

    def audit_targets(self, row: ServiceBreaker) -> list[str]:
        return [f"breaker {row}"]

    @admin.display(description="calls")
    def target_shown(self, breaker: ServiceBreaker) -> str:
        credential = breaker.target.partition(" ")[2]
        return f"{breaker.name}, by {credential}" if credential else breaker.name

    @display(description="state", label={"answers": "success", "does not answer": "danger"})  # type: ignore[untyped-decorator]
    def health(self, breaker: ServiceBreaker) -> str:
        return "does not answer" if breaker.opened_at else "answers"

    open_since = time_column("silent since", "opened_at")
    next_probe = time_column("next probe", "next_probe_at")

    @admin.display(description="last error")
    def last_error_shown(self, breaker: ServiceBreaker) -> str:
        return masked_text(breaker.last_error)[:200]
