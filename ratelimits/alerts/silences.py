"""Silences: until a silence ends, its alerts are not sent or named in a headline. They are still opened and listed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from ratelimits.models import AlertSilence, Limit, QuotaAlert

MAX_HOURS = 30 * 24


class BadSilence(QueueOpsError):
    """It names nothing, or lasts for no time that is allowed."""

    code = "bad_silence"
    detail_fields = ("hours",)


@transaction.atomic
def silence_alerts(
    *, hours: float, actor: str, reason: str, limit: Limit | None = None, kind: str = "", project: str = ""
) -> AlertSilence:
    """
    Silence the alerts that fit everything named here.

    Args:
        hours: How long from now, by the database's clock; more than 0, at most MAX_HOURS.

    Raises:
        BadSilence
    """
    if not (limit or kind or project):
        raise BadSilence("Name a limit, a kind or a project: nothing silences every alert.")
    if not 0 < hours <= MAX_HOURS:
        raise BadSilence(f"A silence lasts for more than 0 and at most {MAX_HOURS:,} hours.", hours=hours)
    silence = AlertSilence.objects.create(
        limit=limit,
        kind=kind,
        project=project,
        until=Now() + timedelta(hours=hours),
        reason=reason,
        created_by=actor,
    )
    silence.refresh_from_db()
    trail.record(
        actor=actor,
        action="silence_alerts",
        target=f"silence {silence.pk}",
        after={"of": str(silence), "until": silence.until},
        reason=reason,
        project_id=project,
    )
    return silence


@transaction.atomic
def end_silences(ids: Sequence[int], *, actor: str) -> int:
    """
    End these silences if they last; alerts that they held back are sent if still open. Return how many silences ended.
    """
    rows = AlertSilence.objects.standing().filter(pk__in=ids).order_by("pk").select_for_update()
    for silence in rows:
        AlertSilence.objects.filter(pk=silence.pk).update(until=Now())
        trail.record(actor=actor, action="end_silence", target=f"silence {silence.pk}", before={"until": silence.until})
    return len(rows)


def silence_of(alert: QuotaAlert, silences: Sequence[AlertSilence]) -> AlertSilence | None:
    """Return the silence that covers an alert for longest."""
    fitting = [silence for silence in silences if silence.covers(alert)]
    return max(fitting, key=lambda silence: silence.until, default=None)
