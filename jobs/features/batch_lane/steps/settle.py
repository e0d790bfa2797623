"""Settles the lines of a provider batch, each line once: its job's fencing token must match."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Protocol
from uuid import UUID

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Extract
from pydantic import ValidationError

from jobs.classify import Failure, clean, failure_of
from jobs.features.results.totals import add_figures
from jobs.features.results.writer import taken_figures, write_result
from jobs.handlers.batch_form import LineResult, line_of
from jobs.handlers.errors import UNTOLD
from jobs.handlers.registry import find_handler
from jobs.models import BatchPace, Job, ProviderBatch, ProviderBatchLine, Way
from jobs.services.finish.claimed import ClaimedJob, opened
from jobs.services.finish.finish import record_outcomes, retry_policies
from jobs.services.finish.outcomes import Failed, GivenBack, Outcome, Succeeded
from jobs.services.finish.result_text import result_text
from jobs.services.finish.singly import raise_others, record_singly
from jobs.states import JobState
from queueops.core.clock import Now
from queueops.core.notify import Channel, notify
from queueops.core.sealing import SealedAway
from queueops.core.sql import run_sql_as
from queueops.core.values.numbers import nearest_rank
from ratelimits.costs import Usage
from ratelimits.limiter.decide import Settlement, settle
from ratelimits.money.holds import held_by_budgets

from .again import not_carried_out, seconds_to_next, went_round, went_unanswered
from .collect import Spoken, holder_of_batch, room_was_made
from .unread import book_unread, settle_unread

logger = logging.getLogger(__name__)

LINES_OF_A_SLICE = 500
PACES_KEPT = 200
SAMPLES_NEEDED = 10
State = ProviderBatchLine.State
ANSWERABLE = frozenset({State.WAITING, State.HANDED_BACK, State.UNANSWERED})
# A success may still come for these. Their jobs have gone on: its result is dropped, and its cost is booked.
FAILED = frozenset({State.FAILED, State.UNAVAILABLE})
_COUNTED = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.UNAVAILABLE: "handed_back",
    State.HANDED_BACK: "handed_back",
    State.UNANSWERED: "unanswered",
    State.DROPPED: "dropped",
}


class OutcomeNotes(Protocol):
    """The outcome log, which notes calls and their ends beside the database: executor/outcome_log.py."""

    def begin(self, jobs: Sequence[ClaimedJob]) -> None: ...
    def end(self, outcomes: Iterable[Outcome]) -> None: ...


@dataclass(frozen=True, slots=True)
class Line:
    """A locked line. `is_owned`: the batch's claim of its job is still valid."""

    number: int
    state: str
    is_owned: bool
    job: ClaimedJob


@dataclass(slots=True)
class Read:
    """
    The results of a batch that have been read.

    Attributes:
        answered: Lines that the provider carried out. `unsent`: lines that it says it did not carry out.
        failed: By number, the outcomes of lines that have failed answers alone. `settle_failures` writes them.
        unknown: Results that belong to no line of the batch. `malformed`: results that could not be read.
    """

    answered: set[int] = field(default_factory=set)
    unsent: set[int] = field(default_factory=set)
    failed: dict[int, Outcome] = field(default_factory=dict)
    unknown: int = 0
    malformed: int = 0


def settle_answers(
    batch: ProviderBatch,
    answers: Sequence[LineResult],
    *,
    read: Read,
    spoken: Spoken,
    secrets: tuple[str, ...],
    log: OutcomeNotes | None = None,
) -> None:
    """
    Write the provider's successes, each of which ends its job, and collect its failures in `read`.

    A provider may answer a line twice, with an error and with a success. A failure waits for `settle_failures`, since a
    success may still come, and counts more. A line that the provider says it did not carry out is left for
    `hand_back_rest`. A line that was settled before changes nothing. If a line's job was cancelled or goes again, its
    success is dropped and its usage is still counted.

    Large results are written to the result store, however slow, while no line is locked. Not to be called inside a
    transaction.

    Args:
        read: Collects which lines were answered or not carried out, and how many results are unknown.
        log: Notes how the lines ended, before the database is written.
    """
    given: dict[int, list[LineResult]] = {}
    for answer in answers:
        number = line_of(answer.custom_id, batch.pk)
        if number is None or number >= batch.lines:
            read.unknown += 1
        elif answer.status:
            given.setdefault(number, []).append(answer)
            read.answered.add(number)
        else:
            read.unsent.add(number)
    if not given:
        return
    with transaction.atomic():
        lines = lock_lines(batch.pk, sorted(given))
    ready: dict[int, Outcome] = {}
    for line in lines:
        if line.state in ANSWERABLE | FAILED:
            outcome = _best_of(line.job, given[line.number], spoken=spoken, secrets=secrets)
            if isinstance(outcome, Succeeded):
                ready[line.number] = outcome
                read.failed.pop(line.number, None)
            elif line.state in ANSWERABLE:
                # Without its payload: all failures of a batch are in memory together.
                read.failed.setdefault(line.number, replace(outcome, job=line.job._replace(payload="")))
    _write(batch, given.keys() - read.failed.keys(), ready, log=log)
    with taken_figures() as figures:  # all executors lock that row: not in the transaction of the lines
        add_figures(figures)


def settle_failures(batch: ProviderBatch, read: Read, *, log: OutcomeNotes | None = None) -> None:
    """
    Write the failures that were read: each goes by its job's retry rules.

    A line that failed by the provider's fault goes again without an attempt, see `not_carried_out`.
    """
    numbers = sorted(read.failed)
    for start in range(0, len(numbers), LINES_OF_A_SLICE):
        some = numbers[start : start + LINES_OF_A_SLICE]
        _write(batch, some, {number: read.failed.pop(number) for number in some}, log=log)


def hand_back_rest(
    batch: ProviderBatch,
    *,
    reason: str,
    live: frozenset[int] | None = frozenset(),
    unanswered: bool = False,
    billed: bool = False,
    only: Collection[int] | None = None,
) -> int:
    """
    Give back the jobs of all lines that are not settled: no attempt is spent.

    Args:
        live: Lines whose jobs go live at once; None: all. The others wait for the next batch, if there is time for one.
        unanswered: The provider should have answered the lines. A job goes live if its second line goes unanswered.
            Otherwise it goes live if the provider has ended too many of its batches before its turn.
        billed: The lines may have been carried out, so their possible cost is booked as unknown.
        only: The numbers of the lines to hand back; None: all.

    Returns:
        How many lines were handed back.
    """
    count = 0
    for numbers in _slices(batch, State.WAITING, only):
        hand_back_lines(batch, numbers, reason=reason, live=live, unanswered=unanswered, billed=billed)
        count += len(numbers)
    if count:
        notify(Channel.READY)
    return count


@transaction.atomic
def hand_back_lines(
    batch: ProviderBatch,
    numbers: Sequence[int],
    *,
    reason: str,
    live: frozenset[int] | None,
    unanswered: bool = False,
    billed: bool = False,
) -> None:
    """Give back the jobs of these lines, with the arguments of `hand_back_rest`."""
    outcomes: list[Outcome] = []
    states: dict[int, State] = dict.fromkeys(numbers, State.DROPPED)
    lines = lock_lines(batch.pk, numbers)
    job_ids = [line.job.id for line in lines]
    waits = seconds_to_next(batch, job_ids)
    had_none = went_unanswered(job_ids) if unanswered else went_round(job_ids)
    if billed:
        book_unread([line.job for line in lines if line.state == State.WAITING])
    for line in lines:
        if line.state != State.WAITING:
            states.pop(line.number)
            continue
        if line.is_owned:
            goes_live = live is None or line.number in live or line.job.id in had_none
            seconds = 0.0 if goes_live else waits[line.job.id]
            job = line.job._replace(bound=None) if billed else line.job
            outcomes.append(GivenBack(job, reason, cost=0, wait_seconds=seconds))
        if unanswered and (line.is_owned or billed):
            states[line.number] = State.UNANSWERED
        elif line.is_owned:
            states[line.number] = State.HANDED_BACK
    record_outcomes(outcomes, policies={})
    _restart_windows([outcome.job.id for outcome in outcomes])
    _mark(batch, states)


def settle_unanswered(batch: ProviderBatch, *, billed: bool, only: Collection[int] | None = None) -> int:
    """
    Settle the unknown costs of lines without an answer: at the booked cost if billed, otherwise at nothing.

    Args:
        only: The numbers of the lines to settle; None: all.

    Returns:
        How many lines were settled.
    """
    count = 0
    for numbers in _slices(batch, State.UNANSWERED, only):
        with transaction.atomic():
            rows = batch.all_lines.filter(number__in=numbers, state=State.UNANSWERED).select_for_update()
            found = list(rows.order_by("number"))
            settle_unread([(line.job_id, line.token) for line in found], billed=billed)
            _mark(batch, dict.fromkeys([line.number for line in found], State.HANDED_BACK))
        count += len(found)
    return count


def _slices(batch: ProviderBatch, state: State, only: Collection[int] | None) -> Iterator[list[int]]:
    """Yield the numbers of the lines in this state, a slice at a time; with `only`, from these lines alone."""
    numbers = list(batch.all_lines.filter(state=state).order_by("number").values_list("number", flat=True))
    if only is not None:
        wanted = set(only)
        numbers = [number for number in numbers if number in wanted]
    for start in range(0, len(numbers), LINES_OF_A_SLICE):
        yield numbers[start : start + LINES_OF_A_SLICE]


@transaction.atomic
def drop_lines(batch: ProviderBatch, numbers: Sequence[int]) -> None:
    """Mark lines as dropped: they were not sent, because nobody wants their jobs any more."""
    _mark(batch, dict.fromkeys(numbers, State.DROPPED))


def lock_lines(batch_id: UUID, numbers: Sequence[int]) -> list[Line]:
    """Lock lines and read their jobs, in the caller's transaction; lines of deleted jobs are left out."""
    rows: list[dict[str, Any]] = run_sql_as(
        dict, "jobs", "read_batch_lines", {"batch": batch_id, "numbers": list(numbers)}
    )
    # Time in a batch does not count in a job's retry window: a batch may take longer than any window.
    held = held_by_budgets([(row["id"], row["token"]) for row in rows])
    return [
        Line(
            row.pop("number"),
            row.pop("line_state"),
            bool(row.pop("is_owned")),
            opened(ClaimedJob(**row | {"window_used": 0.0} | held.get((row["id"], row["token"]), {}))),
        )
        for row in rows
    ]


def close_batch(batch: ProviderBatch, state: ProviderBatch.State) -> None:
    """
    End a batch whose lines have all been given back or settled, and learn from it how long batches take.

    While costs of its lines are unknown, the provider keeps the batch's files: its results may tell the costs.
    """
    ended = ProviderBatch.objects.filter(pk=batch.pk, state__in=ProviderBatch.UNFINISHED)
    settle([Settlement(holder_of_batch(batch.pk))])
    room_was_made()
    is_unknown = batch.all_lines.filter(state=State.UNANSWERED).exists()
    # Write `is_kept` in the same statement as the end: if a process died in between, the results would be deleted.
    kept = {"is_kept": False} if is_unknown else {}
    if ended.update(state=state, closed_at=Now(), **kept) and state == ProviderBatch.State.COMPLETED:
        batch.refresh_from_db()
        _learn_pace(batch)


@transaction.atomic
def _write(
    batch: ProviderBatch,
    given: Collection[int],
    ready: Mapping[int, Outcome],
    *,
    log: OutcomeNotes | None,
) -> None:
    """
    Args:
        given: The numbers of all lines that were answered.
        ready: By number, the outcomes of lines that were answerable. Whether the batch owns their jobs is read again.
    """
    outcomes: list[Outcome] = []
    wanted: dict[int, Outcome] = {}
    states: dict[int, State] = {}
    for line in lock_lines(batch.pk, sorted(given)):
        outcome = ready.get(line.number)
        if outcome is None or not (line.state in ANSWERABLE or _comes_late(line, outcome)):
            continue
        outcome = replace(outcome, job=line.job)
        if line.state != State.WAITING or not line.is_owned:
            states[line.number] = State.DROPPED
            outcomes.append(outcome)
        else:
            wanted[line.number] = outcome
            states[line.number] = State.SUCCEEDED if isinstance(outcome, Succeeded) else State.FAILED
    again = not_carried_out(batch, [one for one in wanted.values() if isinstance(one, Failed)])
    for number, outcome in wanted.items():
        if outcome.job.id in again:
            wanted[number], states[number] = again[outcome.job.id], State.UNAVAILABLE
    outcomes += wanted.values()
    missing = set(given) - states.keys() - _settled(batch, given)
    states |= dict.fromkeys(missing, State.DROPPED)  # their jobs were deleted
    if log is not None:
        log.end(wanted.values())
    _record(outcomes)
    _restart_windows([outcome.job.id for outcome in outcomes if not isinstance(outcome, Succeeded)])
    _mark(batch, states)


def _settled(batch: ProviderBatch, given: Collection[int]) -> set[int]:
    done = batch.all_lines.filter(number__in=list(given)).exclude(state=State.WAITING)
    return set(done.values_list("number", flat=True))


def _record(outcomes: Sequence[Outcome]) -> None:
    """Write outcomes; an outcome that cannot be stored fails alone."""
    policies = retry_policies()
    try:
        with transaction.atomic():
            record_outcomes(outcomes, policies=policies)
    except Exception as error:  # otherwise one outcome would keep all answers of its batch unwritten
        raise_others(error)
        logger.exception("outcomes of a batch are written one by one, because together they fail")
        record_singly(outcomes, policies=policies)


def _comes_late(line: Line, outcome: Outcome) -> bool:
    """Whether a line has failed, and its success comes in a later reading."""
    return line.state in FAILED and isinstance(outcome, Succeeded)


def _best_of(job: ClaimedJob, answers: Sequence[LineResult], *, spoken: Spoken, secrets: tuple[str, ...]) -> Outcome:
    """Return the first success among the answers to a line; without one, the first failure."""
    outcomes: list[Outcome] = []
    for answer in answers:
        outcomes.append(_outcome(job, answer, spoken=spoken, secrets=secrets))
        if isinstance(outcomes[-1], Succeeded):
            return outcomes[-1]
    return outcomes[0]


def _outcome(job: ClaimedJob, answer: LineResult, *, spoken: Spoken, secrets: tuple[str, ...]) -> Outcome:
    handler = find_handler(job.kind)
    if job.closed_by:
        raise SealedAway(job.closed_by)  # the answer stays at the provider until the payload's key is set here
    try:
        payload = handler.schema.validate_json(job.payload)
    except ValidationError as error:
        failure = Failure("invalid_payload", type(error).__qualname__, clean(str(error)), outcome="refused")
        return Failed(
            job, "", handler.retry, repeatable=False, failure=failure, duration_ms=None, cost=0, via=Way.BATCH.value
        )
    # Outcomes here leave out the service: a batch's answers tell nothing of the service's live calls.
    used = UNTOLD
    try:
        if answer.status == HTTPStatus.OK:
            done = spoken.form.read(payload, answer.body, secrets)
            used = done.cost, done.usage  # the provider bills the call even if its result cannot be kept
            text = write_result(job, result_text(done.result))
            return Succeeded(
                job,
                "",
                text,
                None,
                done.cost,
                known_cost=done.known_cost,
                usage=_sound(done.usage),
                via=Way.BATCH.value,
            )
        failure = failure_of(spoken.form.refuse(payload, answer.status, answer.body, secrets), secrets)
    except Exception as error:  # noqa: BLE001 - a handler's own code: its line fails, and no other
        failure = failure_of(error, secrets)
        used = getattr(error, "used", UNTOLD) if used is UNTOLD else used
    if failure.push_back is not None:
        failure = _without_push_back(failure)
    repeatable, usage = handler.is_repeatable(payload), _sound(used[1])
    return Failed(
        job, "", handler.retry, repeatable, failure, None, cost=used[0] or 0, usage=usage, via=Way.BATCH.value
    )


def _sound(usage: Usage | None) -> Usage | None:
    return usage if usage is not None and usage.is_sound else None


def _without_push_back(failure: Failure) -> Failure:
    """Drop the push-back: a quota of batches does not count live calls."""
    return replace(failure, push_back=None, retry_after=None)


def _restart_windows(job_ids: Sequence[UUID]) -> None:
    """Leave the time in the batch out of the job's retry window."""
    if job_ids:
        since = ExpressionWrapper(Now() - F("first_attempt_at"), output_field=DurationField())
        alike = Job.objects.filter(pk__in=job_ids, status=JobState.RETRIED, first_attempt_at__isnull=False)
        alike.update(deferred_seconds=Extract(since, "epoch"))


def _learn_pace(batch: ProviderBatch) -> None:
    if batch.closed_at is None:
        return
    seconds = (batch.closed_at - batch.created_at).total_seconds()
    with transaction.atomic():
        BatchPace.objects.bulk_create([BatchPace(service=batch.service)], ignore_conflicts=True)
        row = BatchPace.objects.select_for_update().get(pk=batch.service)
        row.samples = [*row.samples, seconds][-PACES_KEPT:]
        if len(row.samples) >= SAMPLES_NEEDED:
            row.p95_seconds = nearest_rank(row.samples, 95)
        row.updated_at = Now()
        row.save(update_fields=["samples", "p95_seconds", "updated_at"])


def _mark(batch: ProviderBatch, states: Mapping[int, State]) -> None:
    by_state: dict[State, list[int]] = {}
    for number, state in states.items():
        by_state.setdefault(state, []).append(number)
    added: Counter[str] = Counter()
    for state, numbers in by_state.items():
        changed = batch.all_lines.filter(number__in=numbers).exclude(state=state)
        added["unanswered"] -= changed.filter(state=State.UNANSWERED).count()
        added[_COUNTED[state]] += changed.update(state=state)
    if added:
        changes: dict[str, Any] = {name: F(name) + count for name, count in added.items()}
        ProviderBatch.objects.filter(pk=batch.pk).update(**changes, progressed_at=Now())
