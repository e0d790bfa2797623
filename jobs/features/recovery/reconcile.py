"""
After a restore to an earlier moment, finds jobs that had run since that moment, so that they do not run again.

The files that read_outcomes.py reads name these jobs. This module compares the files with the rows, and changes rows
through the table of moves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs.classify import MAX_CODE, OUTCOME_UNKNOWN, Failure, clean, clean_json
from jobs.errors import NotPaused
from jobs.models import DeadLetter, Job, PauseSwitch, ProviderBatch
from jobs.services.finish.finish import bury
from jobs.services.operate.dead_letters import carry_out_discard
from jobs.services.upkeep.upkeep import is_repeatable
from jobs.states import RUNNING, TERMINAL, JobState
from jobs.transitions import Move, move_jobs
from queueops.audit import trail
from queueops.core.clock import database_now
from queueops.core.sealing import seal_json
from queueops.tenancy.secrets.encryption import is_encrypted

from .read_outcomes import End, Outcomes, Said, Word

RECONCILED_AT_ONCE = 500  # jobs of one transaction
KEYS_AT_ONCE = 10_000  # effect keys have no index: one query, for so many keys at once, reads the whole table
PAYLOADS_AT_ONCE = 50  # a payload may have megabytes
ACTOR = "system:reconcile"


class Discrepancy(StrEnum):
    """The verdicts on what the files and a row say together."""

    COMPLETE = "completed, and waits here"
    FAIL = "failed for good, and waits here"
    BURY = "begun, end unknown, may not be repeated"
    CLOSE = "completed, and a dead letter outcome_unknown here"
    REPEAT = "begun, end unknown, may be repeated"
    AGAIN = "tried or put back, and not done"
    RUNS = "runs here now"
    DIFFERS = "ended otherwise here"
    MISSING = "not in this database"
    KNOWN = "known here"


WHAT_IS_DONE: Mapping[Discrepancy, str] = {
    Discrepancy.COMPLETE: "is completed, with its result",
    Discrepancy.FAIL: "becomes a dead letter",
    Discrepancy.BURY: "becomes a dead letter, outcome_unknown",
    Discrepancy.CLOSE: "the dead letter is discarded",
    Discrepancy.REPEAT: "runs again",
    Discrepancy.AGAIN: "runs again",
    Discrepancy.RUNS: "left alone: its executor will tell",
    Discrepancy.DIFFERS: "left alone: look at it",
    Discrepancy.MISSING: "submitted after the restored moment, or deleted since",
    Discrepancy.KNOWN: "nothing",
}
AS_SAID: Mapping[Word | None, Discrepancy] = {
    Word.COMPLETED: Discrepancy.COMPLETE,
    Word.FAILED: Discrepancy.FAIL,
    Word.NOT_DONE: Discrepancy.AGAIN,
    None: Discrepancy.KNOWN,
}
CHANGING = frozenset({Discrepancy.COMPLETE, Discrepancy.FAIL, Discrepancy.BURY, Discrepancy.CLOSE})


@dataclass(frozen=True, slots=True)
class Judged:
    """`job` is None if the database has no job of that id."""

    id: UUID
    said: Said
    finding: Discrepancy
    job: Job | None = None


def find_by_key(outcomes: Outcomes) -> list[str]:
    """
    Apply an operator's statement on an effect key to the jobs with this key, unless a job has a statement of its own.

    Returns:
        The keys that no job here has.
    """
    keys = iter(outcomes.by_key)
    missing = []
    while some := list(islice(keys, KEYS_AT_ONCE)):
        found = Job.objects.filter(effect_key__in=some).values_list("pk", "effect_key")
        seen = set()
        for job_id, key in found.iterator():
            seen.add(key)
            said = outcomes.jobs.setdefault(job_id, Said(effect_key=key))
            if said.word is None:
                said.word, said.result = outcomes.by_key[key].word, outcomes.by_key[key].result
        missing += [key for key in some if key not in seen]
    return missing


def compare(outcomes: Outcomes) -> Iterator[list[Judged]]:
    """Judge every job that the files name, a chunk at a time; changes nothing."""
    for some in _chunks(sorted(outcomes.jobs), RECONCILED_AT_ONCE):
        yield _judge(some, outcomes, lock=False)


def reconcile(ids: Collection[UUID], outcomes: Outcomes, *, force: bool = False) -> Iterator[Counter[Discrepancy]]:
    """
    Write what the files say of these jobs, each chunk in a transaction of its own, with an audit entry.

    A row is judged again under its lock. A repeated or resumed run changes nothing twice.

    Args:
        force: Write even while not everything is paused.

    Yields:
        After each chunk, how many of its jobs were changed.

    Raises:
        NotPaused: This chunk was not written.
    """
    for some in _chunks(sorted(ids), RECONCILED_AT_ONCE):
        yield _write(some, outcomes, force=force)


@transaction.atomic(durable=True)
def _write(ids: Sequence[UUID], outcomes: Outcomes, *, force: bool) -> Counter[Discrepancy]:
    # Lock the pause: otherwise it could end before the rows are written.
    if not force and not list(PauseSwitch.objects.select_for_update().filter(scope=PauseSwitch.Scope.GLOBAL)):
        raise NotPaused(
            "Not everything is paused: workers may be calling what you are about to reconcile. Pause all first "
            "(Pauses in the admin), or give --force."
        )
    judged = _judge(ids, outcomes, lock=True)
    moved = _complete([one for one in judged if one.finding is Discrepancy.COMPLETE])
    moved |= _bury([one for one in judged if one.finding in {Discrepancy.FAIL, Discrepancy.BURY}])
    moved |= _close([one.id for one in judged if one.finding is Discrepancy.CLOSE])
    done = Counter(one.finding for one in judged if one.id in moved)
    if done:
        counts = {finding.name.lower(): count for finding, count in done.items()}
        trail.record(actor=ACTOR, action="reconcile", target=f"{done.total()} jobs", after=counts, moved=done.total())
    return done


def _judge(ids: Sequence[UUID], outcomes: Outcomes, *, lock: bool) -> list[Judged]:
    rows = Job.objects.filter(pk__in=ids).defer("payload", "result").order_by("pk")
    jobs = {job.pk: job for job in (rows.select_for_update(of=("self",)) if lock else rows)}
    now = database_now()
    claims = {job.pk: _claim(outcomes.jobs[job.pk], job) for job in jobs.values()}
    unknown = [
        job_id for job_id, claim in claims.items() if claim is Word.UNKNOWN and jobs[job_id].status not in TERMINAL
    ]
    repeatable = _repeatable(unknown)
    failed = [job_id for job_id, job in jobs.items() if job.status == JobState.FAILED]
    letters = set(
        DeadLetter.objects.open().filter(job_id__in=failed, error_code=OUTCOME_UNKNOWN).values_list("job_id", flat=True)
    )

    # A lease of a provider batch does not prove that a job still runs: its answer may have been read after the restored
    # moment.
    held = {job.executor for job in jobs.values() if job.status in RUNNING and job.executor}
    in_batches = set(ProviderBatch.objects.filter(pk__in=held).values_list("pk", flat=True))

    def finding(job: Job) -> Discrepancy:
        claim = claims[job.pk]
        if job.status in TERMINAL:
            return _of_ended(job, claim, has_letter=job.pk in letters)
        is_known = claim in {Word.COMPLETED, Word.FAILED} and job.executor in in_batches
        if job.lease_expires_at is not None and job.lease_expires_at.timestamp() > now and not is_known:
            return Discrepancy.RUNS
        if claim is Word.UNKNOWN:
            return Discrepancy.REPEAT if job.pk in repeatable else Discrepancy.BURY
        return AS_SAID[claim]

    return [
        Judged(job_id, outcomes.jobs[job_id], finding(jobs[job_id]), jobs[job_id])
        if job_id in jobs
        else Judged(job_id, outcomes.jobs[job_id], Discrepancy.MISSING)
        for job_id in ids
    ]


def _of_ended(job: Job, claim: Word | None, *, has_letter: bool) -> Discrepancy:
    if claim is Word.COMPLETED and job.status == JobState.FAILED:
        return Discrepancy.CLOSE if has_letter else Discrepancy.DIFFERS
    ends = {Word.COMPLETED: JobState.COMPLETED, Word.FAILED: JobState.FAILED}
    return Discrepancy.DIFFERS if claim in ends and ends[claim] != job.status else Discrepancy.KNOWN


def _claim(said: Said, job: Job) -> Word | None:
    """
    Return what the outcome logs know of a job that its row does not know: the end of the claim whose token the row has,
    or a later claim.
    """
    if said.word is not None:
        return said.word
    if said.end is not None and said.end.token >= job.fencing_token and _is_last(said, said.end):
        return Word.COMPLETED if said.end.is_completed else Word.FAILED
    known = job.fencing_token - (job.status in RUNNING)  # a running job's row does not say how its claim ended
    if said.open_token > known:
        return Word.UNKNOWN
    return Word.NOT_DONE if max(said.begun, default=0) > known else None


def _is_last(said: Said, end: End) -> bool:
    """Whether this attempt's end is the job's end: after a failure, a fallback or credential may begin a later call."""
    return end.is_completed or end.token >= max(said.begun)


def _repeatable(ids: Sequence[UUID]) -> set[UUID]:
    found = set()
    for some in _chunks(ids, PAYLOADS_AT_ONCE):
        found |= {job.pk for job in Job.objects.filter(pk__in=some).only("kind", "payload") if is_repeatable(job)}
    return found


def _complete(judged: Sequence[Judged]) -> set[UUID]:
    def move(one: Judged) -> Move:
        result = one.said.result
        facts: dict[str, Any] = {"actor": ACTOR}
        if one.said.word is None and one.said.end is not None:
            line = one.said.end.place.read()
            result = line.get("result")
            facts |= {"ended": line.get("at"), "claim": line["token"]}
            if "result_bytes" in line:
                facts |= {"result_left_out": f"{line['result_bytes']} bytes, more than an outcome log keeps"}
        text = None if result is None else clean_json(json.dumps(result))
        if text is not None and one.job and is_encrypted(one.job.project_id):
            text = seal_json(text)
        return Move(
            one.id,
            token=one.job.fencing_token if one.job else None,
            message=f"it was completed, says {_who(one)}",
            result=text,
            data=clean_json(json.dumps(facts)),
        )

    moved = move_jobs("reconcile", [move(one) for one in judged if not _is_running(one)])
    return moved | move_jobs("complete", [move(one) for one in judged if _is_running(one)])


def _bury(judged: Sequence[Judged]) -> set[UUID]:
    reasons = {one.id: (one.job.kind if one.job else "", _failure(one)) for one in judged}
    data = json.dumps({"actor": ACTOR})
    moved: set[UUID] = set()
    for edge, is_running in (("reject", False), ("fail", True)):
        moves = [
            Move(
                one.id,
                token=one.job.fencing_token if one.job else None,
                error_code=reasons[one.id][1].code,
                message=reasons[one.id][1].message,
                data=data,
            )
            for one in judged
            if _is_running(one) is is_running
        ]
        moved |= bury(edge, reasons, moves)
    return moved


def _close(ids: Sequence[UUID]) -> set[UUID]:
    letters = dict(DeadLetter.objects.open().filter(job_id__in=ids).values_list("pk", "job_id"))
    closed = carry_out_discard(list(letters), actor=ACTOR, reason="its job was completed before the restore")
    return {letters[pk] for pk in closed}


def _failure(one: Judged) -> Failure:
    if one.finding is Discrepancy.BURY:
        message = f"its call had begun before the database was put back, and {_who(one)} does not tell its end"
        return Failure(OUTCOME_UNKNOWN, "reconcile", message)
    if one.said.word is not None or one.said.end is None:
        return Failure("failed_elsewhere", "reconcile", f"it failed for good, says {_who(one)}", "refused")
    line = one.said.end.place.read()
    code, message = str(line.get("error_code") or "failed_elsewhere"), str(line.get("message") or "")
    return Failure(
        clean(code)[:MAX_CODE], "reconcile", clean(message) or f"it failed for good, says {_who(one)}", "refused"
    )


def _who(one: Judged) -> str:
    return "the outcome log" if one.said.word is None else "an operator"


def _is_running(one: Judged) -> bool:
    return one.job is not None and one.job.status in RUNNING


def _chunks(ids: Iterable[UUID], size: int) -> Iterator[list[UUID]]:
    left = iter(ids)
    while some := list(islice(left, size)):
        yield some
