"""Watches causes of dead letters, by project: each new cause opens an alert, whatever other alerts are open."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.db.models.functions import Substr

from jobs.classify import POISON
from jobs.models import Batch, DeadLetter, RefusedCalls
from jobs.states import GuardState
from queueops.core.clock import Now
from queueops.core.sql import run_sql
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert
from ratelimits.subjects import MAX_ID_LENGTH

from .failing import SERIOUS_SHARE, failing_services

Kind, Severity = QuotaAlert.Kind, QuotaAlert.Severity

# How the alerts' subjects begin: `cause:<fingerprint>/<project>`, `grows:<fingerprint>/<project>`, `size:<project>`,
# `more:<project>`.
CAUSE, GROWTH, SIZE, MORE = "cause:", "grows:", "size:", "more:"
FINGERPRINT = 32  # characters
GROWTH_MINUTES = 15
# If more letters come, only the newest are read. A cause is still seen if one of these letters has it.
MAX_LETTERS_LOOKED_AT = 5_000
MAX_OPEN_READ = 5_000  # open letters counted by project
MAX_CAUSES_TOLD = 50  # open causes of a project that have alerts of their own; the others share one
DECIDED_IN = timedelta(minutes=1)  # a cause that stops its batch or its credential's calls has done so by then
SIZE_RESTS_FOR = timedelta(days=1)  # how long letters of an alerted cause do not count for `size:<project>`


class CauseOf(NamedTuple):
    """A cause in a project."""

    fingerprint: str
    project: str

    @property
    def subject(self) -> str:
        return f"{CAUSE}{self.fingerprint}/{self.project}"


@dataclass(frozen=True, slots=True)
class _Recent:
    """
    The letters of a cause, with the figures of the newest letter.

    Attributes:
        count, before: How many came in the last GROWTH_MINUTES, and in the GROWTH_MINUTES before.
        is_open: Whether any of these letters is open.
        seconds: Since the oldest of these letters was made.
        batch: The newest letter's batch; None: its job has no batch.
    """

    cause: CauseOf
    count: int
    before: int
    is_open: bool
    seconds: float
    service: str
    kind: str
    code: str
    words: str
    remediation: str
    batch: UUID | None


def watch_dead_letters() -> None:
    """
    Alert about new causes, causes that grow, and projects where many letters have been left open.

    Each new cause in a project gets one alert, while a letter of it is open, whatever other alerts are open. A cause
    whose alert is old gets another when its letters come fast. The alerts about fast causes and many letters end at
    half of their threshold.

    A cause is critical where nearly all attempts at its service fail with the same error. `watch_failing` then opens no
    second alert.
    """
    fast, many = settings.QUEUEOPS.alert_dead_letters, settings.QUEUEOPS.alert_open_dead_letters
    recent, is_whole = _recent()
    told = causes_told()
    elsewhere = _told_by_a_stop(recent)
    fresh = [cause for cause, one in recent.items() if one.is_open and cause not in told and cause not in elsewhere]
    grown = _grown(recent, fast) if is_whole else []  # letters read in part do not show growth
    chosen = [cause for cause in recent if cause in told and recent[cause].is_open] + _within_bounds(fresh, told)
    serious = {(one.service, one.code) for one in failing_services(share=SERIOUS_SHARE)} if recent else set()
    found = [_of_cause(recent[cause], serious) for cause in chosen]
    found += [_of_growth(recent[cause], fast, serious) for cause in grown]
    more = Counter(cause.project for cause in {*fresh} - {*chosen})
    found += [_of_more(project, count) for project, count in more.items()]
    sizes = _left_open(many, {*fresh})
    found += [_of_size(project, many, count) for project, count in sizes.items() if count >= many]
    keep = {cause.subject for cause in told}
    keep |= {_growth_of(cause) for cause, one in recent.items() if one.count * 2 > fast}
    keep |= {f"{SIZE}{project}" for project, count in sizes.items() if count * 2 > many}
    reconcile(Kind.DEAD_LETTERS, found, keep=keep)


def causes_told() -> set[CauseOf]:
    """Causes that have an open alert of their own, and an open letter in their project."""
    fingerprint = Substr(OuterRef("subject"), len(CAUSE) + 1, FINGERPRINT)
    project = Substr(OuterRef("subject"), len(CAUSE) + FINGERPRINT + 2)
    is_open = Exists(DeadLetter.objects.open().filter(fingerprint=fingerprint, project_id=project))
    alerts = QuotaAlert.objects.filter(is_open, kind=Kind.DEAD_LETTERS, subject__startswith=CAUSE, resolved_at=None)
    return {_read(subject) for subject in alerts.values_list("subject", flat=True)}


def _read(subject: str) -> CauseOf:
    fingerprint, _, project = subject[len(CAUSE) :].partition("/")
    return CauseOf(fingerprint, project)


def _growth_of(cause: CauseOf) -> str:
    return f"{GROWTH}{cause.fingerprint}/{cause.project}"


def _recent() -> tuple[dict[CauseOf, _Recent], bool]:
    """The letters of the last two windows by their cause, the latest first, and whether all were read."""
    found, total = {}, 0
    rows = run_sql("jobs", "list_recent_causes", {"seconds": 60.0 * GROWTH_MINUTES, "most": MAX_LETTERS_LOOKED_AT})
    for fingerprint, project, last, both, open_ones, seconds, service, kind, code, remediation, batch in rows:
        cause, words = CauseOf(fingerprint, project), f"{code} ({kind}, {project})"
        found[cause] = _Recent(
            cause, last, both - last, open_ones > 0, seconds, service, kind, code, words, remediation, batch
        )
        total += both
    return found, total < MAX_LETTERS_LOOKED_AT


def _told_by_a_stop(recent: Mapping[CauseOf, _Recent]) -> set[CauseOf]:
    """
    Return causes that have another alert, or soon may: they stopped a batch or a credential's calls, or killed
    workers.

    A cause that may still stop something is left out for DECIDED_IN. Once the other alert is over, a cause with open
    letters gets its own.
    """
    batches = dict.fromkeys({one.batch for one in recent.values() if one.batch})
    guards = {
        pk: (state, str((guard or {}).get("code", "")))
        for pk, state, guard in Batch.objects.filter(pk__in=batches).values_list("pk", "guard_state", "guard")
    }
    counted = {
        (project, service, code): stopped is not None
        for project, service, code, stopped in RefusedCalls.objects.values_list(
            "project_id", "service", "code", "stopped_at"
        )
    }
    deadly = QuotaAlert.objects.filter(kind=Kind.WORKER_DIED, resolved_at=None)
    killers = set(deadly.values_list("subject", flat=True))  # kinds of jobs
    found = set()
    for cause, one in recent.items():
        state, code = guards.get(one.batch, ("", "")) if one.batch else ("", "")
        has_stopped = counted.get((cause.project, one.service, one.code))
        may_stop = has_stopped is not None or state == GuardState.TRIAL
        is_told = has_stopped or (state == GuardState.STOPPED and code == one.code)
        is_told = is_told or (one.code == POISON and one.kind in killers)
        if is_told or (may_stop and one.seconds < DECIDED_IN.total_seconds()):
            found.add(cause)
    return found


def _grown(recent: Mapping[CauseOf, _Recent], fast: int) -> list[CauseOf]:
    """
    Return the causes whose letters come fast now, and whose growth is new or goes on.

    Growth is new if letters did not come fast in the GROWTH_MINUTES before, and the cause's open alert is older still.
    """
    fast_now = [cause for cause, one in recent.items() if one.count >= fast]
    if not fast_now:
        return []
    long_ago = Now() - timedelta(minutes=2 * GROWTH_MINUTES)
    subjects = [cause.subject for cause in fast_now]
    known = QuotaAlert.objects.filter(kind=Kind.DEAD_LETTERS, subject__in=subjects, resolved_at=None)
    told_long_ago = set(known.filter(opened_at__lt=long_ago).values_list("subject", flat=True))
    growing = QuotaAlert.objects.filter(kind=Kind.DEAD_LETTERS, subject__startswith=GROWTH, resolved_at=None)
    open_now = set(growing.values_list("subject", flat=True))
    return [
        cause
        for cause in fast_now
        if (cause.subject in told_long_ago and recent[cause].before < fast) or _growth_of(cause) in open_now
    ]


def _within_bounds(fresh: Iterable[CauseOf], told: Collection[CauseOf]) -> list[CauseOf]:
    counts, chosen = Counter(cause.project for cause in told), []
    for cause in fresh:
        if counts[cause.project] < MAX_CAUSES_TOLD:
            counts[cause.project] += 1
            chosen.append(cause)
    return chosen


def _left_open(many: int, fresh: Collection[CauseOf]) -> dict[str, int]:
    """
    Count open letters by project, without causes alerted within SIZE_RESTS_FOR; reads at most MAX_OPEN_READ letters.
    """
    counted = run_sql("jobs", "count_open_causes", {"most": MAX_OPEN_READ})
    if sum(count for _, _, count in counted) * 2 <= many:
        return {}
    lately = QuotaAlert.objects.filter(
        kind=Kind.DEAD_LETTERS, subject__startswith=CAUSE, opened_at__gt=Now() - SIZE_RESTS_FOR
    )
    just_told = {*fresh, *map(_read, lately.values_list("subject", flat=True))}
    counts: dict[str, int] = defaultdict(int)
    for fingerprint, project, count in counted:
        if CauseOf(fingerprint, project) not in just_told:
            counts[project] += count
    return counts


def _severity(one: _Recent, serious: Collection[tuple[str, str]]) -> QuotaAlert.Severity:
    """Args: serious: Services nearly all of whose attempts fail, with the error that they fail with."""
    return Severity.CRITICAL if (one.service, one.code) in serious else Severity.WARNING


def _of_cause(one: _Recent, serious: Collection[tuple[str, str]]) -> Opening:
    return Opening(
        Kind.DEAD_LETTERS,
        one.cause.subject[:MAX_ID_LENGTH],
        _severity(one, serious),
        f"failed for good: {one.words}; {one.remediation}",
        {
            "dead_letters": one.count,
            "minutes": GROWTH_MINUTES,
            "projects": [one.cause.project],
            "cause": f"{one.service} {one.cause.fingerprint}",
        },
    )


def _of_growth(one: _Recent, fast: int, serious: Collection[tuple[str, str]]) -> Opening:
    return Opening(
        Kind.DEAD_LETTERS,
        _growth_of(one.cause)[:MAX_ID_LENGTH],
        _severity(one, serious),
        f"{fast:,} or more dead letters in {GROWTH_MINUTES} minutes of a cause told before: {one.words}",
        {
            "dead_letters": one.count,
            "minutes": GROWTH_MINUTES,
            "projects": [one.cause.project],
            "cause": f"{one.service} {one.cause.fingerprint} grows",
        },
    )


def _of_more(project: str, count: int) -> Opening:
    message = f"{project}: jobs fail for good of {count:,} causes besides the {MAX_CAUSES_TOLD:,} told one by one"
    return Opening(Kind.DEAD_LETTERS, f"{MORE}{project}", Severity.WARNING, message, {"projects": [project]})


def _of_size(project: str, many: int, count: int) -> Opening:
    message = f"{project}: {many:,} or more dead letters are open, of causes told more than a day ago"
    figures = {"open_at_least": count, "projects": [project]}
    return Opening(Kind.DEAD_LETTERS, f"{SIZE}{project}", Severity.WARNING, message, figures)
