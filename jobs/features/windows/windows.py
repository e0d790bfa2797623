"""
Maintenance windows: pauses by calendar.

An open window has its own pause switch beside people's switches. The end of one switch does not release the work that
another one holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from jobs.features.windows.errors import BadWindow, UnknownWindow
from jobs.models import MaintenanceWindow, PauseSwitch
from jobs.services.operate.pauses import HOLDING, hold, release_uncovered
from jobs.times.calendar import Span, merged
from jobs.times.cron import BadTimes
from queueops.audit import trail
from queueops.core.clock import database_moment
from queueops.core.notify import Channel, notify
from queueops.core.postgres.unique_names import faults_of
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.models import Project, ProjectMove

FIGURES = ("scope", "key", "reason", "begins_at", "ends_at", "weekdays", "since", "until", "time_zone")
CHANGED_AT_ONCE = 50
MAX_WINDOWS = 200  # windows read to find coming times
FORESEEN = timedelta(days=31)
FORESEEN_SPANS = 5
Scope = MaintenanceWindow.Scope


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A time at which a window is open, or will be."""

    window: MaintenanceWindow
    span: Span


@transaction.atomic
def save_window(
    window_id: UUID | None, figures: Mapping[str, Any], *, actor: str, reason: str = ""
) -> MaintenanceWindow:
    """
    Make a window, or change one. A window that is open by its new times holds its work within about a second.

    Args:
        window_id: None: a new one.
        figures: Values by their names in FIGURES; fields left out stay as they are.

    Raises:
        BadWindow: With the path of each bad field. Nothing was changed.
        UnknownWindow
    """
    new = window_id is None
    window = MaintenanceWindow(created_by=actor) if window_id is None else _locked(window_id)
    before = None if new else _told(window)
    for name, value in figures.items():
        setattr(window, name, value)
    if before is None or {**before, "reason": window.reason} != _told(window):
        window.skipped_until = None  # a window ended by hand stays ended if only its reason changes
    window.next_change_at = check_window(window).begins_at
    window.save(force_insert=new)
    if before is not None and (before["scope"], before["key"]) != (window.scope, window.key):
        _take_off(window)  # its switch holds the work of the old scope
    elif not new:
        window.next_change_at = database_moment()  # the new times may require that its switch is deleted
        window.save(update_fields=["next_change_at"])
    _record(f"{'create' if new else 'change'}_window", window, before, _told(window), actor=actor, reason=reason)
    return window


def check_window(window: MaintenanceWindow) -> Span:
    """
    Check a window, and return when it is open, now or next.

    Raises:
        BadWindow: With the path of each bad field.
    """
    faults = faults_of(window)
    if "scope" not in faults and "key" not in faults:
        faults |= _faults_of_key(window)
    if not faults:
        try:
            return window.calendar.check(database_moment())
        except BadTimes as error:
            faults["since" if error.field == "cron" else error.field] = [str(error)]
    raise BadWindow(fields=faults)


def _faults_of_key(window: MaintenanceWindow) -> dict[str, list[str]]:
    if window.scope == Scope.GLOBAL:
        return {"key": ["Leave it empty: everything has no name."]} if window.key else {}
    if not window.key or "\0" in window.key:
        return {"key": [f"Name the {window.scope}."]}
    if window.scope == Scope.PROJECT and not Project.objects.filter(pk=window.key).exists():
        return {"key": ["There is no such project."]}
    return {}


@transaction.atomic
def end_window(window_id: UUID, *, actor: str, reason: str = "") -> MaintenanceWindow:
    """
    End a window that is open; a weekly window comes again. A window that is not open stays as it is.

    Raises:
        UnknownWindow
        BadWindow: This host does not know its time zone.
    """
    window = _locked(window_id)
    now = database_moment()
    if not window.is_told:
        raise BadWindow(fields={"time_zone": [window.zone_fault]})
    span = next(window.spans(now), None)
    if span is not None and span.begins_at <= now:
        window.skipped_until = window.next_change_at = now
        window.save(update_fields=["skipped_until", "next_change_at"])
        _take_off(window)
        told = {"until": span.ends_at.isoformat()}
        _record("end_window", window, told, {"until": now.isoformat()}, actor=actor, reason=reason)
    return window


@transaction.atomic
def delete_window(window_id: UUID, *, actor: str, reason: str = "") -> None:
    """
    Delete a window; its held work goes on, unless something else holds it.

    Raises:
        UnknownWindow
    """
    window = _locked(window_id)
    _take_off(window)
    _record("delete_window", window, _told(window), None, actor=actor, reason=reason)
    window.delete()


def _take_off(window: MaintenanceWindow) -> None:
    """Delete a window's switch in the caller's transaction; held jobs are put back after the commit."""
    removed, _ = PauseSwitch.objects.filter(window=window).delete()
    if removed:
        notify(Channel.READY)
    if removed and window.scope in HOLDING:
        transaction.on_commit(release_uncovered)


def tend_windows(*, at: datetime | None = None) -> int:
    """
    Open and close the windows that are due.

    The next call does what a dead process left undone. A window that began and ended while no process ran is skipped.
    A window whose time zone is not known here stays as it is; it would fail each second, and crowd out the others.

    For house-keeping; not to be called inside a transaction.

    Args:
        at: None: now, by the database's clock.

    Returns:
        How many windows were looked at.
    """
    if not MaintenanceWindow.objects.filter(next_change_at__isnull=False).exists():
        return 0
    now = at or database_moment()
    # Leave out windows of a project that moves or has moved: its rows may not change here, and the windows would be
    # tried for ever.
    away = Q(scope=Scope.PROJECT, key__in=Project.objects.exclude(move=ProjectMove.NONE).values("pk"))
    due = MaintenanceWindow.objects.filter(next_change_at__lte=now).exclude(away).order_by("next_change_at")
    ids = [window.pk for window in due[:MAX_WINDOWS] if window.is_told][:CHANGED_AT_ONCE]
    one_by_one(ids, lambda pk: _tend(pk, now), what="the maintenance window")
    return len(ids)


def _tend(window_id: UUID, now: datetime) -> None:
    """Make a window's switch agree with its calendar at this moment."""
    with transaction.atomic(durable=True):
        rows = MaintenanceWindow.objects.select_for_update().filter(pk=window_id, next_change_at__lte=now)
        window = rows.first()
        if window is None:
            return
        first = next(window.spans(now), None)
        is_open = first is not None and first.begins_at <= now
        switch = PauseSwitch.objects.filter(window=window).first()
        opens, closes = is_open and switch is None, not is_open and switch is not None
        if first is not None and is_open:
            switch, _ = PauseSwitch.objects.update_or_create(
                window=window,
                defaults={"until": first.ends_at, "reason": window.reason},
                create_defaults={
                    "scope": window.scope,
                    "key": window.key,
                    "reason": window.reason,
                    "paused_by": window.actor,
                    "until": first.ends_at,
                },
            )
            # `_tend` runs again when this span ends. If the next span begins at that moment, the switch stays, and no
            # job starts in between.
            window.next_change_at = first.ends_at
        else:
            PauseSwitch.objects.filter(window=window).delete()
            window.next_change_at = None if first is None else first.begins_at
        window.save(update_fields=["next_change_at"])
        if opens or closes:
            _record("pause" if opens else "resume", window, None, {"paused": opens}, actor=window.actor)
        if closes:
            notify(Channel.READY)
    if opens and switch is not None and switch.scope in HOLDING:
        hold(switch)
    if closes and window.scope in HOLDING:
        release_uncovered()


def next_spans(window: MaintenanceWindow, *, most: int = FORESEEN_SPANS) -> list[Span]:
    """When the window is open, now and next; empty where its times cannot be told."""
    return list(islice(_spans(window, database_moment()), most))


def _spans(window: MaintenanceWindow, after: datetime) -> Iterator[Span]:
    # One window's time zone would otherwise break the pages and forecasts of all work.
    return window.spans(after) if window.is_told else iter(())


def upcoming(*, now: datetime, within: timedelta, most: int) -> list[Upcoming]:
    """Windows that begin in the span `within` from now on, the soonest first."""
    rows = MaintenanceWindow.objects.filter(next_change_at__isnull=False).order_by("next_change_at")[:MAX_WINDOWS]
    found = [
        Upcoming(row, span)
        for row in rows
        for span in takewhile(lambda one: one.begins_at <= now + within, _spans(row, now))
        if span.begins_at > now
    ]
    return sorted(found, key=lambda one: one.span.begins_at)[:most]


def spans_over(project: str, *, services: Collection[str], kinds: Collection[str], now: datetime) -> Sequence[Span]:
    """When windows hold some of this work, within FORESEEN; overlapping times are joined."""
    covers = Q(scope=Scope.PROJECT, key=project)
    covers |= Q(scope=Scope.SERVICE, key__in=list(services)) | Q(scope=Scope.KIND, key__in=list(kinds))
    if project != PauseSwitch.EXEMPT:
        covers |= Q(scope=Scope.GLOBAL)
    rows = MaintenanceWindow.objects.filter(covers, next_change_at__isnull=False).order_by("next_change_at")
    return merged(
        [
            span
            for row in rows[:MAX_WINDOWS]
            for span in takewhile(lambda one: one.begins_at <= now + FORESEEN, _spans(row, now))
        ]
    )


def _locked(window_id: UUID) -> MaintenanceWindow:
    found = MaintenanceWindow.objects.select_for_update().filter(pk=window_id).first()
    if found is None:
        raise UnknownWindow(window_id=str(window_id))
    return found


def _told(window: MaintenanceWindow) -> dict[str, Any]:
    figures = {name: getattr(window, name) for name in FIGURES}
    return {name: str(value) if name in ("since", "until") and value else value for name, value in figures.items()}


def _record(
    action: str,
    window: MaintenanceWindow,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    actor: str,
    reason: str = "",
) -> None:
    trail.record(
        actor=actor,
        action=action,
        target=f"maintenance window {window.pk}",
        before=before and dict(before),
        after=after and dict(after),
        reason=clean_reason(reason),
        project_id=window.key if window.scope == Scope.PROJECT else "",
    )
