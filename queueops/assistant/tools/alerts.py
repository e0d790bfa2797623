"""Tools that read alerts, the runbooks for alerts, and objectives."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dashboards.services.project import alerts_of, may_read
from jobs.features.objectives.api import READ_OBJECTIVES, ObjectiveList
from queueops.assistant.asking import ask
from queueops.assistant.errors import nothing_found
from queueops.assistant.showing import ToolAnswer
from queueops.assistant.tool import tool
from queueops.core.runbooks import runbook_text
from queueops.core.values.numbers import numbered
from queueops.rest.inputs import Input
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.alerts.silences import silence_of
from ratelimits.models import AlertSilence, QuotaAlert

READ = Need(Scope.READ, "ratelimits.view_quotaalert")
MAX_ALERTS_TOLD = 50
WITHHELD = "It is about other projects, too: operators read it in the admin."


class OfAlert(Input):
    alert: int = Field(description="Its id, as the tool `alerts` tells it.")


@tool(READ)
def alerts(caller: Caller, given: Any) -> ToolAnswer:
    """Open alerts about the project, or about the whole installation, the newest first."""
    found = alerts_of(caller.project_id)[:MAX_ALERTS_TOLD]
    silences = list(AlertSilence.objects.standing())
    rows = [alert_row(one, caller, silence_of(one, silences)) for one in found]
    return ToolAnswer(f"{numbered(len(rows), 'open alert')}. The tool `runbook` says what to do about one.", rows)


@tool(READ, OfAlert)
def runbook(caller: Caller, given: OfAlert) -> ToolAnswer:
    """Tell what to do about an open alert: the runbook of its kind, in full."""
    alert = find_alert(caller, given.alert)
    shown = {"alert": alert_row(alert, caller, None), "runbook": runbook_text(alert.kind)}
    return ToolAnswer(f"The runbook of alerts of the kind {alert.kind}.", shown)


@tool(READ_OBJECTIVES)
def objectives(caller: Caller, given: Any) -> ToolAnswer:
    """The project's service level objectives: what is attained, what is left of the budget, how fast it goes."""
    told = ask(caller, ObjectiveList)
    return ToolAnswer(f"{numbered(len(told['objectives']), 'objective')}.", told, masks=False)


def find_alert(caller: Caller, alert_id: int) -> QuotaAlert:
    """
    Raises:
        ApiRefused: The alert is not open, or is about other projects.
    """
    found = next((one for one in alerts_of(caller.project_id) if one.pk == alert_id), None)
    if found is None:
        raise nothing_found(f"The project has no open alert {alert_id}.")
    return found


def alert_row(alert: QuotaAlert, caller: Caller, silence: AlertSilence | None) -> dict[str, Any]:
    is_told = caller.sees_all or may_read(alert, caller.project_id)
    return {
        "id": alert.pk,
        "kind": alert.kind,
        "means": alert.get_kind_display(),
        "severity": alert.severity,
        "message": alert.message if is_told else WITHHELD,
        "about": "the project" if alert.projects else "the installation",
        "opened_at": alert.opened_at,
        "forecast_at": alert.forecast_at,
        "acknowledged_at": alert.acknowledged_at,
        "silenced_until": silence.until if silence else None,
    }
