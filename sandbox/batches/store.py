"""Batches and files in memory, and what became of each line."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from sandbox import clock
from sandbox.provider import CallIdentity, CallTokens

MAX_FILES_BYTES = 1_000_000_000
PIECE_LINES = 250

Outcome = Literal["succeeded", "errored", "canceled", "expired"]
Phase = Literal["validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled"]
ENDED: frozenset[Phase] = frozenset({"completed", "failed", "expired", "cancelled"})


@dataclass(slots=True)
class ReceivedLine:
    """
    One request of a batch.

    `answer` is a body in the provider's shape, also for an error. `copies` is how often the line is in the results;
    0: its result was lost. A malformed result cannot be read.
    """

    custom_id: str
    body: dict[str, Any]
    outcome: Outcome | None = None
    status: int = 200
    answer: Any = None
    tokens: CallTokens | None = None
    model: str = ""
    digest: bytes = b""
    copies: int = 1
    is_malformed: bool = False


@dataclass(slots=True)
class ResultFile:
    """Results of lines, and the custom_ids of the results that can be read."""

    texts: list[bytes] = field(default_factory=list)
    readable: set[str] = field(default_factory=set)
    size: int = 0
    is_delivered: bool = False

    def add(self, text: str, line: ReceivedLine) -> None:
        self.texts.append(text.encode())
        self.size += len(self.texts[-1]) + 1
        if not line.is_malformed:
            self.readable.add(line.custom_id)

    def pieces(self, separator: bytes = b"\n") -> Iterator[bytes]:
        """Yield all results, a few hundred lines at a time."""
        for start in range(0, len(self.texts), PIECE_LINES):
            yield separator.join(self.texts[start : start + PIECE_LINES]) + separator


@dataclass(slots=True)
class ReceivedBatch:
    """
    A batch of one provider. `entered` has the time at which it entered each phase.

    `details` has further fields that this provider's API needs. `answer_lost` says that the caller never got the
    batch's id.
    """

    id: str
    provider: str
    caller: CallIdentity
    model: str | None
    lines: list[ReceivedLine]
    details: dict[str, Any]
    window_seconds: float
    created_at: float = field(default_factory=clock.now)
    phase: Phase = "validating"
    entered: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, ResultFile] = field(default_factory=dict)
    usage: Counter[str] = field(default_factory=Counter)
    enqueued_tokens: int = 0
    answer_lost: bool = False
    is_deleted: bool = False
    cancel_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.entered[phase] = clock.now()

    def has_ended(self) -> bool:
        return self.phase in ENDED

    def expires_at(self) -> float:
        return self.created_at + self.window_seconds

    def delivered_lines(self) -> int:
        return sum(len(found.readable) for found in self.results.values() if found.is_delivered)

    def is_never_fetched(self) -> bool:
        """Return whether the batch has results and nobody fetched any of them."""
        return bool(self.results) and not any(found.is_delivered for found in self.results.values())


@dataclass(slots=True)
class StoredFile:
    id: str
    provider: str
    project: str
    filename: str
    purpose: str
    data: bytes = b""
    results: ResultFile | None = None
    is_complete: bool = True
    created_at: float = field(default_factory=clock.now)

    def bytes(self) -> int:
        return len(self.data) if self.results is None else self.results.size


class BatchBook:
    """Every batch and file since the start, in the order in which they were made."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.clear()

    def clear(self) -> None:
        """Delete everything, and cancel the batches that run."""
        for task in self._tasks:
            task.cancel()
        self.batches: dict[str, ReceivedBatch] = {}
        self.files: dict[str, StoredFile] = {}
        self.made = 0

    def start(self, batch: ReceivedBatch, task: asyncio.Task[None]) -> None:
        self.batches[batch.id] = batch
        self.made += 1
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def get(self, batch_id: str, *, provider: str, project: str) -> ReceivedBatch | None:
        """Return a batch of this project; None: it has no such batch, though another project may."""
        batch = self.batches.get(batch_id)
        if batch is None or batch.is_deleted or (batch.provider, batch.caller.project) != (provider, project):
            return None
        return batch

    def file(self, file_id: str, *, provider: str, project: str) -> StoredFile | None:
        found = self.files.get(file_id)
        return found if found and (found.provider, found.project) == (provider, project) else None

    def has_room(self, size: int) -> bool:
        return sum(stored.bytes() for stored in self.files.values()) + size <= MAX_FILES_BYTES

    def newest(self, *, provider: str, project: str, after: str | None, limit: int) -> tuple[list[ReceivedBatch], bool]:
        """Return up to `limit` batches made before `after`, newest first, and whether there are more."""
        owned = (batch for batch in self._owned(provider, project) if not batch.is_deleted)
        if after is not None:
            for batch in owned:
                if batch.id == after:
                    break
        found = list(islice(owned, limit + 1))
        return found[:limit], len(found) > limit

    def enqueued_tokens(self, *, provider: str, project: str, model: str | None) -> int:
        """Return the tokens of prompts that wait in batches which have not ended."""
        return sum(
            batch.enqueued_tokens
            for batch in self._owned(provider, project)
            if batch.model == model and not batch.has_ended()
        )

    def waiting_lines(self, *, provider: str, project: str) -> int:
        return sum(len(batch.lines) for batch in self._owned(provider, project) if not batch.has_ended())

    def _owned(self, provider: str, project: str) -> Iterator[ReceivedBatch]:
        return (
            batch
            for batch in reversed(self.batches.values())
            if (batch.provider, batch.caller.project) == (provider, project)
        )
