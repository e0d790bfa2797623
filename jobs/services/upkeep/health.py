"""The findings of every front page, the gravest first: whether work flows, what holds it back, what needs a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.utils import timezone

from jobs.features.batch_guards import guards
from jobs.features.outages.outages import grouped
from jobs.features.served_kinds.served_kinds import UNSERVED
from jobs.features.watches.failing import Failing, Refusing
from jobs.features.watches.paused import ShownPause, by_whom
from jobs.features.windows.windows import Upcoming
from jobs.models import DeadLetter, Executor, PauseSwitch, ServiceBreaker
from jobs.states import RUNNING, WAITING, JobState
from queueops.core.values.numbers import numbered
from ratelimits.limits.ramps import ShownRamp
from ratelimits.models import QuotaAlert
from ratelimits.usage.allowance_alerts import OF_THE_QUEUE

Tone = Literal["good", "held", "warn", "bad"]
Page = Literal[
    "executors", "breakers", "pauses", "windows", "batch", "alert", "limit", "ramp", "dead_letters", "failing", "jobs"
]
Health = Literal["alive", "draining", "silent"]
Change = Literal["ends", "clears", "asks"]

MAX_NAMED_IN_A_SENTENCE = 3
MAX_LETTERS_COUNTED = 10_000  # dead letters; if there are more, texts say "more than"
MAX_LETTERS_READ = 200
LATELY = timedelta(hours=1)  # older failures are not counted for the commonest cause, however many are open
TOLD_APART = {QuotaAlert.Kind.OUTAGE, QuotaAlert.Kind.FAILING, QuotaAlert.Kind.NO_EXECUTOR}  # have their own findings
HELD_SECONDS = 10  # a queue behind a limit that clears sooner is no finding


@dataclass(frozen=True, slots=True)
class Finding:
    """
    Attributes:
        text: The verdict, if this finding comes first.
        cause: Its likely cause, or what to do; empty: the text says enough.
        page, key: Where to look; the key names one row of the page.
        begins_at: When the trouble is to begin.
        until: When the trouble ends by itself, if that is known. Texts name no time, because screens show `until` by
            the viewer's clock.
        change: What happens at `until`: the trouble ends, the waiting work has cleared, or a probe is sent.
    """

    tone: Tone
    text: str
    cause: str = ""
    page: Page = "jobs"
    key: str = ""
    until: datetime | None = None
    begins_at: datetime | None = None
    change: Change = "ends"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """
    Work that waits behind one counter of a limit.

    Attributes:
        waiting: How many jobs wait, as far as they were counted; `words` says if there are more.
        clears_at: When they should have passed the limit; None: no pace is known.
    """

    limit_id: int
    limit: str
    key: str
    waiting: int
    words: str
    clears_at: datetime | None


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """Open dead letters: how many, at most MAX_LETTERS_COUNTED, and the commonest cause among the newest."""

    count: int
    more: bool = False
    cause: str = ""

    @property
    def words(self) -> str:
        return f"more than {self.count:,}" if self.more else f"{self.count:,}"


@dataclass(frozen=True, slots=True)
class Situation:
    """
    The facts that the findings follow from.

    Attributes:
        counts: Jobs by state, of all projects.
        executors: The health of each.
        pauses: All pauses, of batches too, the oldest first.
        silent: Open breakers, oldest first. `held_by_outages`: jobs that wait for them.
        failing: Services most of whose attempts fail.
        alerts: Open alerts that nobody acknowledged, the gravest first.
        upcoming: Maintenance windows that are not open yet, the soonest first.
    """

    counts: Mapping[str, int]
    executors: Sequence[Health]
    pauses: Sequence[ShownPause] = ()
    silent: Sequence[ServiceBreaker] = ()
    held_by_outages: int = 0
    failing: Sequence[Failing | Refusing] = ()
    alerts: Sequence[QuotaAlert] = ()
    held_back: Sequence[HeldBack] = ()
    letters: OpenLetters = field(default_factory=lambda: OpenLetters(0))
    ramp: ShownRamp | None = None
    upcoming: Sequence[Upcoming] = ()

    @property
    def waiting(self) -> int:
        return sum(self.counts[state] for state in WAITING)

    @property
    def running(self) -> int:
        return sum(self.counts[state] for state in RUNNING)


def findings(situation: Situation) -> list[Finding]:
    """
    Return all findings, at least one.

    Work that people hold comes first, then work that providers hold, then work that limits hold: paused work does
    not run, whatever its provider and its limits do. Within each group the largest comes first.
    """
    found = [
        *_nobody_works(situation),
        *_everything_paused(situation),
        *_not_served(situation),
        *_pauses(situation),
        *_outages(situation),
        *_failing(situation),
        *_critical(situation),
        *_ramp(situation),
        *_held_back(situation),
        *_other_alerts(situation),
        *_letters(situation),
    ]
    coming = _upcoming(situation)
    if not found:
        return [_flows(situation), *coming]
    first = found[0]
    if first.tone in {"bad", "held"} or first.page in {"pauses", "batch"}:
        return [*found, *coming]
    return [replace(first, text=f"{_flows(situation).text} {first.text}"), *found[1:], *coming]


def health_of(executor: Executor) -> Health:
    """Return an executor's health. It is silent once its leases must have lapsed: others then take its jobs over."""
    if timezone.now() - executor.heartbeat_at > timedelta(seconds=settings.QUEUEOPS.lease_seconds):
        return "silent"
    return "draining" if executor.draining else "alive"


def open_letters(project_id: str | None = None) -> OpenLetters:
    """Read how many dead letters, of a project or of all, are open and why, in bounded reads."""
    letters = DeadLetter.objects.all() if project_id is None else DeadLetter.objects.of_project(project_id)
    count = letters.open().order_by().values("pk")[: MAX_LETTERS_COUNTED + 1].count()
    if not count:
        return OpenLetters(0)
    newest = letters.order_by("-created_at").values_list("resolution", "created_at", "error_code", "kind", "project_id")
    read = [row[1:] for row in newest[:MAX_LETTERS_READ] if row[0] is None]
    since = timezone.now() - LATELY
    causes = Counter(row[1:] for row in read if row[0] > since)
    cause = ""
    if causes:
        [((code, kind, project), _)] = causes.most_common(1)
        cause = f"Most lately: {code} of {kind}, project {project}."
    elif read:
        at, code, kind, project = read[0]
        cause = f"The newest, of {at:%Y-%m-%d %H:%M} UTC: {code} of {kind}, project {project}."
    return OpenLetters(min(count, MAX_LETTERS_COUNTED), more=count > MAX_LETTERS_COUNTED, cause=cause)


def _nobody_works(situation: Situation) -> list[Finding]:
    if "alive" in situation.executors:
        return []
    silent = "silent" in situation.executors
    why = "Those that were there have gone silent." if silent else "None is running: start manage.py qcluster."
    left = situation.waiting + situation.running
    stands = f"{numbered(left, 'job stands', 'jobs stand')} still." if left else "nothing would be carried out."
    return [Finding("bad", f"No executor is alive: {stands}", why, "executors")]


def _everything_paused(situation: Situation) -> list[Finding]:
    paused = next((one for one in situation.pauses if one.switch.scope == PauseSwitch.Scope.GLOBAL), None)
    if paused is None:
        return []
    return [Finding("warn", "Everything is paused.", by_whom(paused), "pauses", until=paused.switch.until)]


def _upcoming(situation: Situation) -> list[Finding]:
    """Coming maintenance, each window once, so that it surprises nobody."""
    soonest: dict[object, Upcoming] = {}
    for one in situation.upcoming:
        soonest.setdefault(one.window.pk, one)
    return [
        Finding(
            "held",
            f"{_what(one)} pauses for maintenance.",
            one.window.reason,
            "windows",
            until=one.span.ends_at,
            begins_at=one.span.begins_at,
        )
        for one in soonest.values()
    ]


def _what(one: Upcoming) -> str:
    name = str(one.window)
    return name[:1].upper() + name[1:]


def _ramp(situation: Situation) -> list[Finding]:
    ramp = situation.ramp
    if ramp is None:
        return []
    how = ", held there" if ramp.ends_at is None else ""
    why = "Services without a limit get the same share of the slots."
    return [
        Finding("held", f"Paced by the ramp: {ramp.percent} % of every limit{how}.", why, "ramp", until=ramp.ends_at)
    ]


def _outages(situation: Situation) -> list[Finding]:
    if not situation.silent:
        return []
    names = list(grouped(situation.silent))
    verb, its, it = ("does", "Its", "it is") if len(names) == 1 else ("do", "Their", "they are")
    held = _jobs(f"{situation.held_by_outages:,}") if situation.held_by_outages else f"{its} work waits"
    return [
        Finding(
            "bad",
            f"{_named(names)} {verb} not answer.",
            f"{held} unharmed; one job at a time asks whether {it} back.",
            "breakers",
            until=min((one.next_probe_at for one in situation.silent if one.next_probe_at), default=None),
            change="asks",
        )
    ]


def _failing(situation: Situation) -> list[Finding]:
    out = {one.service for one in situation.silent}
    return [
        Finding("bad", f"{one.words}.", one.cause, "failing", one.service)
        for one in situation.failing
        if one.service not in out
    ][:MAX_NAMED_IN_A_SENTENCE]


def _critical(situation: Situation) -> list[Finding]:
    """Alerts of users' allowances are left out: they hold up no work."""
    return [
        Finding("bad", alert.message, "A critical alert that nobody looks after.", "alert", str(alert.pk))
        for alert in situation.alerts
        if alert.severity == QuotaAlert.Severity.CRITICAL
        and alert.kind in OF_THE_QUEUE
        and alert.kind not in TOLD_APART
    ][:MAX_NAMED_IN_A_SENTENCE]


def _held_back(situation: Situation) -> list[Finding]:
    now = timezone.now()
    late = now + timedelta(seconds=HELD_SECONDS)
    holding = [one for one in situation.held_back if one.clears_at is None or one.clears_at > late]
    is_faulty = bool(situation.silent or situation.failing)
    holding.sort(key=lambda one: (-one.waiting, one.clears_at is not None, -(one.clears_at or now).timestamp()))
    return [
        Finding(
            "held",
            f"Held by {_counter(one)}" + (": clears as running calls end." if one.clears_at is None else "."),
            f"{_jobs(one.words)} behind it" + ("." if is_faulty else "; that is the cap at work, not a fault."),
            "limit",
            str(one.limit_id),
            one.clears_at,
            change="clears",
        )
        for one in holding[:MAX_NAMED_IN_A_SENTENCE]
    ]


def _not_served(situation: Situation) -> list[Finding]:
    """Work that the platform itself holds, because no worker can carry it out."""
    ours = [one.name for one in situation.pauses if one.switch.scope in UNSERVED]
    why = "Its work waits unharmed: start a worker with its app, or of the release that made it."
    if all(one.switch.scope == PauseSwitch.Scope.SEALED for one in situation.pauses if one.switch.scope in UNSERVED):
        why = "Its work waits unharmed: put the key back into QUEUEOPS_PAYLOAD_KEYS and start the workers anew."
    return [Finding("bad", f"{_named(ours).capitalize()}.", why, "pauses")] if ours else []


def _pauses(situation: Situation) -> list[Finding]:
    partial = [one for one in situation.pauses if one.switch.scope not in {PauseSwitch.Scope.GLOBAL, *UNSERVED}]
    partial.sort(key=lambda one: (-(one.waiting or 0), one.switch.created_at))
    found = []
    for one in partial[:MAX_NAMED_IN_A_SENTENCE]:
        is_batch = one.switch.scope == PauseSwitch.Scope.BATCH
        waits = f"; {_jobs(f'{one.waiting:,}')}" if one.waiting else ""
        page: Page = "batch" if is_batch else "pauses"
        key = one.switch.key if is_batch else ""
        text = f"{_stopped(one.switch, one.name)}{waits}."
        found.append(Finding("warn", text, by_whom(one), page, key, until=one.switch.until))
    more = [one.name for one in partial[MAX_NAMED_IN_A_SENTENCE:]]
    return [*found, Finding("warn", f"Paused besides: {_named(more)}.", page="pauses")] if more else found


def _stopped(switch: PauseSwitch, name: str) -> str:
    """Say who set a switch: people, a batch that stopped itself, or a provider that refuses calls."""
    if switch.scope == PauseSwitch.Scope.REFUSED:
        return f"Calls of {switch.key} have stopped: their provider refuses them"
    if switch.scope == PauseSwitch.Scope.BATCH and switch.paused_by == guards.SYSTEM:
        return f"{name[:1].upper()}{name[1:]} has stopped itself"
    return f"Paused: {name}"


def _other_alerts(situation: Situation) -> list[Finding]:
    """Leave out alerts that are shown elsewhere: usage and queues with the limits, dead letters by their count."""
    kinds = QuotaAlert.Kind
    told = {
        kinds.OLDEST_READY,
        kinds.LONG_RUNNING,
        kinds.STUCK_EXECUTOR,
        kinds.WORKER_DIED,
        kinds.CHARGE_LEAK,
        kinds.HORIZON,
        kinds.OBJECTIVE,
        kinds.SCHEDULE,
        kinds.AUDIT_STREAM,
        kinds.RECEIVER,
        kinds.OVERRIDE,
    }
    caps = [
        Finding("warn", f"{alert.message}.", "Work goes on at the provider's pace.", "alert", str(alert.pk))
        for alert in situation.alerts
        if alert.kind == kinds.EXCEEDED and alert.severity != QuotaAlert.Severity.CRITICAL
    ]
    return (
        caps[:MAX_NAMED_IN_A_SENTENCE]
        + [
            Finding("warn", alert.message, "See its runbook.", "alert", str(alert.pk))
            for alert in situation.alerts
            if alert.kind in told and alert.severity != QuotaAlert.Severity.CRITICAL
        ][:MAX_NAMED_IN_A_SENTENCE]
    )


def _letters(situation: Situation) -> list[Finding]:
    letters = situation.letters
    if not letters.count:
        return []
    words = "1 dead letter needs" if letters.words == "1" else f"{letters.words} dead letters need"
    return [Finding("warn", f"{words} a person.", letters.cause, "dead_letters")]


def _flows(situation: Situation) -> Finding:
    if not situation.waiting and not situation.running:
        return Finding("good", "Nothing to do: the queue is empty.")
    limited = max(0, situation.counts[JobState.RATE_LIMITED] - situation.held_by_outages)
    return Finding("good", "Flowing.", f"{limited:,} wait for quota, for seconds only." if limited else "")


def _counter(one: HeldBack) -> str:
    if one.key == "*":
        return one.limit
    parts = [part.replace(":", " ", 1) for part in one.key.split("/")]
    return f"{one.limit}, {', '.join(parts)}"


def _jobs(words: str) -> str:
    return "1 job waits" if words == "1" else f"{words} jobs wait"


def _named(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED_IN_A_SENTENCE
    return ", ".join(names[:MAX_NAMED_IN_A_SENTENCE]) + (f" and {more} more" if more > 0 else "")
