"""Tools that preview changes, and `confirm`, the only tool that makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import Max
from pydantic import Field, StringConstraints

from dashboards.services.project import may_read
from jobs.api.views.base import CANCEL, PAUSE, READ, REQUEUE
from jobs.api.views.batch_actions import CancelBatch, PauseBatch, ResumeBatch
from jobs.api.views.batches import BatchDetail
from jobs.api.views.dead_letters import RequeueDeadLetters
from jobs.api.views.projects import PauseProject, ProjectDetail, ResumeProject
from queueops.assistant.asking import ask
from queueops.assistant.confirmations import CONFIRMATION_SECONDS, give, take
from queueops.assistant.errors import SharedAlert, SharedPause, nothing_found
from queueops.assistant.finding import batch_id, letters_of, limit_of
from queueops.assistant.showing import ToolAnswer
from queueops.assistant.tool import TOOLS, checked, find_tool, tool
from queueops.core.values.numbers import numbered
from queueops.rest.inputs import Input
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need, ensure
from queueops.tenancy.models import Scope
from ratelimits.alerts.alerts import acknowledge_alerts
from ratelimits.limits.api.limits import CHANGE, LimitDetail, LimitOverrides

from .alerts import find_alert
from .limits import Cap
from .work import Text

ACKNOWLEDGE = Need(Scope.OPERATE, "ratelimits.acknowledge_alert")
THROUGH = "through the assistant"  # added to the reason of every change in the audit trail
UNFINISHED = ("queued", "rate_limited", "retried", "dispatched", "in_progress")

Reason = Annotated[str, StringConstraints(min_length=1, max_length=400, strip_whitespace=True)]


@dataclass(frozen=True, slots=True)
class Change:
    """
    Attributes:
        says: What the change would do, in the tool's own words.
        seen: The state now. If the state differs when the change is confirmed, the change is not made.
        make: Makes the change with the caller's own permissions, and returns what was done.
    """

    says: str
    seen: Any
    make: Callable[[], Any]


class WithWhy(Input):
    reason: Reason = Field(description="For the audit trail.")

    @property
    def why(self) -> str:
        return f"{self.reason} ({THROUGH})"


class OfCause(WithWhy):
    fingerprint: Text = Field(description="The cause, as `causes_of_dead_letters` tells it.")
    spread_seconds: float = Field(default=0, ge=0, le=86_400, description="Spread the starts over this.")


class OfPause(WithWhy):
    scope: Literal["project", "batch", "kind", "service"] = Field(description="Keys: the project, or a batch of it.")
    key: Text | None = Field(default=None, description="Of a batch: its id, its end, or its name.")


class OfCancel(WithWhy):
    batch: Text = Field(description="Its id, in full or its last 8 characters as lists show it, or its name.")


class OfCap(WithWhy):
    limit: Text = Field(description="Its name or id.")
    capacity: Cap = Field(description="The project's own cap, in the limit's unit a window.")
    key: Text | None = Field(default=None, description="As its counter shows it. By default the whole project.")


class OfAcknowledged(WithWhy):
    alert: int = Field(description="Its id, as the tool `alerts` tells it.")


class Confirmed(Input):
    change: Text = Field(description="The tool whose preview gave the confirmation.")
    arguments: dict[str, Any] = Field(description="Exactly those that were previewed.")
    confirmation: str = Field(max_length=500, description="As the preview gave it. Good once, for five minutes.")


Plan = Callable[[Caller, Any], Change]
PLANS: dict[str, Plan] = {}


def preview(needs: Need, given: type[Input]) -> Callable[[Plan], Plan]:
    """Register the plan of a change as a tool. The tool says what the change would do, and changes nothing."""

    def register(plan: Plan) -> Plan:
        def show(caller: Caller, arguments: Any) -> ToolAnswer:
            change = plan(caller, arguments)
            told = {
                "seen": change.seen,
                "confirmation": give(caller, plan.__name__, arguments.model_dump(mode="json"), change.seen),
                "good_for_seconds": CONFIRMATION_SECONDS,
            }
            return ToolAnswer(f"Nothing has changed yet. {change.says}", told, masks=False)

        show.__name__, show.__doc__ = plan.__name__, plan.__doc__
        tool(needs, given)(show)
        PLANS[plan.__name__] = plan
        return plan

    return register


@preview(REQUEUE, OfCause)
def preview_requeue(caller: Caller, given: OfCause) -> Change:
    """Preview requeueing the open dead letters of one cause, as new jobs. Later letters are not touched."""
    letters = letters_of(caller, given.fingerprint)
    count, newest = letters.count(), letters.aggregate(newest=Max("created_at"))["newest"]
    if not count:
        raise nothing_found("The project has no open dead letter of this cause.")
    until: datetime = newest

    def make() -> Any:
        wanted = {"fingerprint": given.fingerprint, "created_until": until.isoformat()}
        body = {"filter": wanted, "spread_seconds": given.spread_seconds, "note": given.why}
        return ask(caller, RequeueDeadLetters, "POST", body=body)

    says = f"{numbered(count, 'open dead letter')} of this cause would be requeued."
    return Change(says, {"dead_letters": count, "newest": until.isoformat()}, make)


@preview(PAUSE, OfPause)
def preview_pause(caller: Caller, given: OfPause) -> Change:
    """Preview pausing the project, or a batch of it: nothing new of it would start, and running jobs go on."""
    return _pausing(caller, given, pause=True)


@preview(PAUSE, OfPause)
def preview_resume(caller: Caller, given: OfPause) -> Change:
    """Preview resuming the project, or a batch of it. Jobs that another pause covers stay held."""
    return _pausing(caller, given, pause=False)


@preview(CANCEL, OfCancel)
def preview_cancel_batch(caller: Caller, given: OfCancel) -> Change:
    """Preview cancelling the jobs of a batch that have not ended. A cancellation cannot be taken back."""
    pk = batch_id(caller, given.batch)
    counts = ask(caller, BatchDetail, pk=pk)["counts"]
    count = sum(counts[state] for state in UNFINISHED)
    says = f"{numbered(count, 'job')} of batch {pk} would be cancelled; what ends before is left alone."
    # The number of jobs is left out: it falls while jobs end, and would make the confirmation invalid.
    seen = {"batch": str(pk)}
    return Change(says, seen, lambda: ask(caller, CancelBatch, "POST", body={"reason": given.why}, pk=pk))


@preview(CHANGE, OfCap)
def preview_cap(caller: Caller, given: OfCap) -> Change:
    """Preview giving the project, or one key of it, a cap of its own in a limit. `simulate_cap` plays it first."""
    limit = limit_of(given.limit)
    key = given.key or f"project:{caller.project_id}"
    now = ask(caller, LimitDetail, pk=limit.pk)
    own = next((one["capacity"] for one in now["overrides"] if one["key"] == key), None)
    seen = {"limit": limit.pk, "key": key, "capacity": now["capacity"], "own_capacity": own}
    body = {"key": key, "capacity": given.capacity, "reason": given.why}
    says = (
        f"The cap of limit {limit.pk} for this key would be {given.capacity:g} instead of {own or now['capacity']:g}."
    )
    return Change(says, seen, lambda: ask(caller, LimitOverrides, "POST", body=body, pk=limit.pk))


@preview(ACKNOWLEDGE, OfAcknowledged)
def preview_acknowledge(caller: Caller, given: OfAcknowledged) -> Change:
    """Preview telling the others that somebody looks after an alert. It stays open until its cause is gone."""
    alert = find_alert(caller, given.alert)
    if not caller.sees_all and not (alert.projects and may_read(alert, caller.project_id) and len(alert.projects) == 1):
        raise SharedAlert
    seen = {"alert": alert.pk, "acknowledged": alert.acknowledged_at is not None}

    def make() -> Any:
        return {"acknowledged": acknowledge_alerts([alert.pk], actor=caller.actor, reason=given.why)}

    return Change(f"Alert {alert.pk} would be acknowledged.", seen, make)


@tool(READ, Confirmed, changes=True)
def confirm(caller: Caller, given: Confirmed) -> ToolAnswer:
    """
    Make a change that was previewed, with the key's own permissions, and leave it in the audit trail. Ask the person
    you work for before: this is the only tool that changes anything.
    """
    if given.change not in PLANS:
        find_tool(given.change)
        raise nothing_found(f"{given.change} is no preview of a change.")
    previewed = TOOLS[given.change]
    ensure(caller, previewed.needs)
    arguments = checked(previewed.given, given.arguments)
    change = PLANS[given.change](caller, arguments)
    take(given.confirmation, caller, given.change, arguments=arguments.model_dump(mode="json"), seen=change.seen)
    return ToolAnswer("Done; the audit trail has it.", change.make(), masks=False)


def _pausing(caller: Caller, given: OfPause, *, pause: bool) -> Change:
    verb = "paused" if pause else "resumed"
    body = {"reason": given.why}
    if given.scope in {"kind", "service"}:
        raise SharedPause
    if given.scope == "project":
        now = ask(caller, ProjectDetail)
        seen: dict[str, Any] = {"project": now["id"], "paused": now["paused"]}
        says = f"The project would be {verb}: {numbered(now['unfinished'], 'job')} of it have not ended."
        whole = PauseProject if pause else ResumeProject
        return Change(says, seen, lambda: ask(caller, whole, "POST", body=body))
    pk = batch_id(caller, given.key or "")
    batch = ask(caller, BatchDetail, pk=pk)
    count = sum(batch["counts"][state] for state in UNFINISHED)
    says = f"Batch {pk} would be {verb}: {numbered(count, 'job')} of it have not ended."
    view = PauseBatch if pause else ResumeBatch
    seen = {"batch": str(pk), "paused": batch["paused"]}
    return Change(says, seen, lambda: ask(caller, view, "POST", body=body, pk=pk))
