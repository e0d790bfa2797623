"""Batches of a door: makes them of a file's lines or a body's requests, counts their jobs, and cancels them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from jobs.models import Batch, BulkOperation, Job, new_id
from jobs.services.explain.snapshots import batch_counts
from jobs.services.operate.bulk import cancel_batch
from jobs.services.submit.documents.accept_document import Line, LineError, TooManyJobs
from jobs.services.submit.submit import BatchRejected, EmptyBatch, submit_batch
from jobs.states import UNFINISHED, JobState
from queueops.core.clock import Now, database_moment
from queueops.core.errors import IdempotencyKeyReused

from .errors import BadDoorRequest, NoSuchObject, RequestsRefused, ResultsGone
from .files import copy_file, find_file
from .lines import LineReader, fault_of
from .models import DoorBatch, Protocol
from .previous import RESPONSES, find_previous, names_in
from .repeats import digest_of, lock_request
from .routes import routes_of

WINDOW = re.compile(r"([1-9][0-9]{0,4})([mhd])")
DOOR_ID = re.compile(
    r"(?:batch_|msgbatch_|file-output-|file-error-)(?P<batch>[0-9a-f]{32})|(?:resp_|req_|batch_req_)(?P<job>[0-9a-f]{32})"
)
KEY = re.compile(r"[0-9a-f]{32}/.")
SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
MAX_WINDOW = timedelta(days=30)
PREFIXES = {Protocol.OPENAI: "batch_", Protocol.ANTHROPIC: "msgbatch_"}
SAME_FOR = timedelta(minutes=10)  # official clients repeat a POST whose answer did not come
PROVIDERS_WINDOW = timedelta(hours=24)
REFUSED_KEPT = timedelta(days=30)
SPARE = timedelta(minutes=1)
MAX_METADATA_PAIRS = 16  # this bound and the next two are OpenAI's; docs/reference/wire-facts.md
MAX_METADATA_KEY_LENGTH = 64
MAX_METADATA_VALUE_LENGTH = 512
MAX_FAULTS_TOLD = 20


@dataclass(frozen=True, slots=True)
class DoorCounts:
    """
    The jobs of a door's batch, by how they ended.

    Attributes:
        finished_at: When the batch ended; house-keeping notes this some seconds later. None: it goes on, or its lines
            were refused.
    """

    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    unfinished: int = 0
    finished_at: datetime | None = None


def window_of(text: Any) -> timedelta:
    """
    Read a completion window, such as 24h.

    Raises:
        BadDoorRequest
    """
    found = WINDOW.fullmatch(text) if isinstance(text, str) else None
    window = timedelta(seconds=int(found[1]) * SECONDS[found[2]]) if found else None
    if window is None or window > MAX_WINDOW:
        raise BadDoorRequest(
            f"completion_window is 24h, or minutes, hours or days up to {MAX_WINDOW.days}d, such as 90m.",
            fields={"completion_window": ["is 24h, or minutes"]},
        )
    return window


def check_metadata(given: Any) -> Mapping[str, str] | None:
    """
    Raises:
        BadDoorRequest
    """
    if given is None:
        return None
    fits = isinstance(given, dict) and len(given) <= MAX_METADATA_PAIRS
    for name, value in given.items() if fits else ():
        fits = fits and len(name) <= MAX_METADATA_KEY_LENGTH and isinstance(value, str)
        fits = fits and len(value) <= MAX_METADATA_VALUE_LENGTH and "\0" not in name + value
    if not fits:
        raise BadDoorRequest(
            f"metadata is an object of at most {MAX_METADATA_PAIRS} texts, each of at most {MAX_METADATA_VALUE_LENGTH}"
            " characters.",
            fields={"metadata": ["an object of at most"]},
        )
    return dict(given)


def batch_of_file(
    file_id: UUID, *, project_id: str, endpoint: str, window: str, metadata: Mapping[str, str] | None, **by: str
) -> DoorBatch:
    """
    Make a batch of a file's lines, or return the batch that the same request has made.

    If any line is not valid, the whole file is refused: the batch has the errors, and no job is made.

    Args:
        by: `actor` and `key` of `_make_once`.

    Raises:
        BadDoorRequest, NoSuchObject, IdempotencyKeyReused, QueueFull, OutOfTime, ClientLeft: Nothing was stored.
    """
    file = find_file(file_id, project_id=project_id, field="input_file_id")
    made = _new(Protocol.OPENAI, project_id, endpoint, window)
    made.file_id, made.file_name, made.metadata = file.pk, file.file_name, metadata

    def store(reader: LineReader) -> None:
        with closing(copy_file(file)) as copy:
            if endpoint == RESPONSES:
                # Now: lines are read by a thread that must not query the database.
                reader.previous = find_previous(names_in(copy), project_id)
            store_batch(made, reader.jobs_of_file(copy), actor=by["actor"], name=file.file_name)

    return _make_once(made, store, asked=[str(file_id), endpoint, window, metadata], **by)


def batch_of_requests(
    lines: Callable[[LineReader], Iterable[Line]], raw: bytes, *, project_id: str, endpoint: str, window: str, **by: str
) -> DoorBatch:
    """
    Make a batch of the requests that came in one body, or return the batch that the same body has made.

    Args:
        lines: The requests as jobs.
        raw: The body.
        by: `actor` and `key` of `_make_once`.

    Raises:
        RequestsRefused: Some requests are not valid. Nothing was stored; this holds for the next errors, too.
        IdempotencyKeyReused, QueueFull, OutOfTime, ClientLeft
    """
    made = _new(Protocol.ANTHROPIC, project_id, endpoint, window)

    def store(reader: LineReader) -> None:
        store_batch(made, lines(reader), actor=by["actor"], name="messages")
        if made.errors:
            raise refused_requests(made)

    return _make_once(made, store, asked=[endpoint, hashlib.sha256(raw).hexdigest()], **by)


def _make_once(
    batch: DoorBatch, store: Callable[[LineReader], None], *, asked: list[Any], actor: str, key: str
) -> DoorBatch:
    """
    Store a batch, or return the batch that the same request has made.

    Args:
        key: The request's Idempotency-Key: requests with one key are the same for ever. Empty: equal requests are the
            same within SAME_FOR.
    """
    batch.asked = digest_of(asked)
    batch.digest = digest_of([key]) if key else batch.asked
    with transaction.atomic():
        lock_request(batch.project_id, batch.digest)
        if (first := same_again(batch, key=key)) is not None:
            return first
        # Begin the window only here: the time that this request waited for an equal one must not count.
        batch.complete_by = database_moment() + window_of(batch.window)
        store(_reader_for(batch))
    return batch


def refused_requests(batch: DoorBatch) -> RequestsRefused:
    """Return the error that names the first faults, each with its place."""
    told = []
    for error in batch.errors[:MAX_FAULTS_TOLD]:
        place = f"requests.{error['line'] - 1}" if error["line"] else "requests"
        where, said = fault_of(error["fields"], error["message"])
        told.append(f"{place}: {where}: {said}" if where else f"{place}: {said}")
    count = batch.error_count
    how_many = "1 request is" if count == 1 else f"{count:,} requests are"
    return RequestsRefused(f"{how_many} not valid; none was accepted. {' '.join(told)}")


def same_again(batch: DoorBatch, *, key: str) -> DoorBatch | None:
    """
    Return the batch that the same request has made; None: it has made none.

    With a key, the batch may be of any age, and cancelled. Without a key, it was made within SAME_FOR and was not
    cancelled. A request whose lines were refused is carried out again: it made no jobs.

    Raises:
        IdempotencyKeyReused: The key was used for another request.
    """
    of_request = {"project_id": batch.project_id, "digest": batch.digest}
    rows = DoorBatch.objects.filter(**of_request, batch_id__isnull=False)
    lately = rows.filter(created_at__gt=Now() - SAME_FOR, cancelled_at=None)
    found = (rows if key else lately).order_by("-pk").first()
    if found is not None and found.asked != batch.asked:
        raise IdempotencyKeyReused("The Idempotency-Key was used for another batch.", idempotency_key=key)
    return found


def _reader_for(batch: DoorBatch) -> LineReader:
    return LineReader(
        routes_of(batch.project_id),
        Protocol(batch.door),
        batch.endpoint,
        batch.key_prefix,
        _deadline_of(batch),
        settings.QUEUEOPS.max_job_bytes,
    )


def _deadline_of(batch: DoorBatch) -> datetime:
    """
    Return by when the batch's jobs are wanted.

    A provider's own batch takes up to a day, and time must be left to do live the jobs that it did not do. Without
    this added time, jobs with a window of a day would go live at once, at the full price.
    """
    margin = timedelta(seconds=settings.QUEUEOPS.batch_margin_seconds)
    is_whole_day = window_of(batch.window) == PROVIDERS_WINDOW
    return batch.complete_by + margin + SPARE if is_whole_day else batch.complete_by


def store_batch(batch: DoorBatch, lines: Iterable[Line], *, actor: str, name: str) -> None:
    """
    Submit the lines in the caller's transaction, or note why they are refused.

    Raises:
        QueueFull, OutOfTime, ClientLeft
    """
    try:
        with transaction.atomic():
            receipt = submit_batch(lines, project_id=batch.project_id, actor=actor, name=name)
        batch.batch_id = receipt.id
    except BatchRejected as error:
        batch.errors, batch.error_count = error.details["errors"], error.details["error_count"]
    except (TooManyJobs, EmptyBatch) as error:
        batch.errors, batch.error_count = [LineError(0, error.code, error.message, {}).as_dict()], 1
    batch.save(force_insert=True)
    batch.refresh_from_db()


def find_batch(batch_id: UUID, *, project_id: str, door: Protocol) -> DoorBatch:
    """
    Raises:
        NoSuchObject
    """
    found = DoorBatch.objects.filter(pk=batch_id, project_id=project_id, door=door).first()
    if found is None:
        raise NoSuchObject("There is no such batch.", fields={"id": ["no such batch"]})
    return found


def counts_of(batches: Sequence[DoorBatch]) -> dict[UUID, DoorCounts]:
    """Return the counts of each of these batches."""
    ids = [batch.batch_id for batch in batches if batch.batch_id is not None]
    rows = {row.pk: row for row in Batch.objects.filter(pk__in=ids).only("id", "total", "finished_at")}
    counts = batch_counts(ids)
    found = {}
    for batch in batches:
        row = rows.get(batch.batch_id) if batch.batch_id is not None else None
        if row is None:  # the lines were refused, or house-keeping has deleted the batch after its time
            found[batch.pk] = DoorCounts(finished_at=batch.complete_by if batch.batch_id else None)
            continue
        by_state = counts[row.pk]
        unfinished = sum(by_state[state] for state in UNFINISHED)
        found[batch.pk] = DoorCounts(
            total=row.total,
            completed=by_state[JobState.COMPLETED],
            failed=by_state[JobState.FAILED],
            cancelled=by_state[JobState.CANCELLED],
            unfinished=unfinished,
            finished_at=None if unfinished else row.finished_at,
        )
    return found


def custom_id_of(job: Job) -> str:
    """Return the `custom_id` of a job that came by a door; empty: the job came otherwise, or by a requeue."""
    key = job.idempotency_key or ""
    if job.batch_id is None or not KEY.match(key):
        return ""
    batch = DoorBatch.objects.filter(batch_id=job.batch_id).first()
    return key.removeprefix(batch.key_prefix) if batch else ""


def own_id_of(text: str) -> str:
    """Return our own id of the batch or job that has this id at a door; empty: the text is no such id."""
    found = DOOR_ID.fullmatch(text)
    if found is None:
        return ""
    if found["job"]:
        return found["job"]
    batch = DoorBatch.objects.filter(pk=found["batch"]).values_list("batch_id", flat=True).first()
    return str(batch or "")


def told_of_door(batch_id: UUID) -> str:
    """Describe a batch that came by a door: its id there, file and metadata; empty: it came another way."""
    batch = DoorBatch.objects.filter(batch_id=batch_id).first()
    if batch is None:
        return ""
    name = f"{batch.get_door_display().partition(',')[0]}: {PREFIXES[Protocol(batch.door)]}{batch.pk.hex}"
    file = f", file {batch.file_name}" if batch.file_name else ""
    known = batch.metadata if isinstance(batch.metadata, dict) else {}  # sealed metadata is a text
    pairs = "".join(f", {name}={value}" for name, value in known.items())
    return f"{name}{file}, {batch.endpoint} within {batch.window}{pairs}"


def ensure_whole(batch: DoorBatch, lines: int, *, answered: bool | None) -> None:
    """
    Check that a file which was just written has a line for each job that the batch counts.

    Raises:
        ResultsGone
    """
    counts = counts_of([batch])[batch.pk]
    others = counts.failed + counts.cancelled
    expected = counts.completed if answered else others
    if lines < (counts.completed + others if answered is None else expected):
        raise ResultsGone


def forget_batches() -> int:
    """Delete old rows whose batch was deleted or never made; for house-keeping. Returns how many."""
    old = DoorBatch.objects.filter(created_at__lt=Now() - REFUSED_KEPT)
    return old.filter(~Exists(Batch.objects.filter(pk=OuterRef("batch_id")))).delete()[0]


def cancel_door_batch(batch: DoorBatch, *, actor: str) -> BulkOperation | None:
    """Cancel the jobs that have not ended; None: there is nothing to cancel."""
    if batch.batch_id is None or batch.cancelled_at is not None:
        return None
    with transaction.atomic():
        operation = cancel_batch(batch.batch_id, actor=actor, reason="cancelled by its producer")
        batch.cancelled_at = database_moment()
        batch.save(update_fields=["cancelled_at"])
    return operation


def _new(door: Protocol, project_id: str, endpoint: str, window: str) -> DoorBatch:
    window_of(window)  # refuses a bad window before anything is locked
    return DoorBatch(pk=new_id(), door=door, project_id=project_id, endpoint=endpoint, window=window)
