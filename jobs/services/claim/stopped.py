"""Finds the lanes that no limit holds: a pause or an outage does."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.lanes import Lane, tag_of
from jobs.models import PauseSwitch, ServiceBreaker


def stopped_lanes(lanes: Iterable[Lane]) -> set[Lane]:
    """
    Return the lanes of paused projects and of targets that are out.

    Their jobs have no mark of their own: `held` is set by the other pauses alone.
    """
    scopes = (PauseSwitch.Scope.PROJECT, PauseSwitch.Scope.GLOBAL)
    paused = set(PauseSwitch.objects.filter(scope__in=scopes).values_list("key", flat=True))
    silent = ServiceBreaker.objects.exclude(opened_at=None).values_list("service", "project_id", "target")
    out = {(service, project, tag_of(target)) for service, project, target in silent}
    return {
        lane
        for lane in lanes
        if lane.project in paused
        or ("" in paused and lane.project != PauseSwitch.EXEMPT)  # the global switch has an empty key
        or (lane.subject.service, lane.project, lane.tag) in out
    }
