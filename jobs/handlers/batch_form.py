"""
The batch form of a kind's jobs, as their handler declares it, and the provider's batch API that carries it out.

The batch lane calls an API on its own event loop. Every error that an API raises is a ProviderError.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

from jobs.handlers.errors import ProviderError
from jobs.handlers.http.answers import one_line, storable
from jobs.handlers.llm.access import key_of
from queueops.core.values.retry_after import their_now

if TYPE_CHECKING:
    from jobs.handlers.registry import Done
    from queueops.core.outbound.client import OutboundResponse
    from queueops.tenancy.secrets.credentials import OpenCredential

Ending = Literal["completed", "expired", "cancelled", "failed"]
CLOCK_IS_WRONG = timedelta(hours=1)  # the most by which our clock and a provider's may differ
LIST_SLACK = timedelta(minutes=2)
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Access:
    """A provider's address and the headers for it, which hold the key."""

    root: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Intent:
    """
    A batch that is to be made.

    Attributes:
        id: QueueOps's own id, given to the provider so that the batch can be looked for.
        lines: The JSON text of each line, in the API's own form.
    """

    id: UUID
    model: str
    count: int
    created_at: datetime
    lines: Sequence[bytes] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Remote:
    """
    A batch as its provider describes it.

    Attributes:
        state: In the provider's own word.
        ending: None: it has not ended.
        intent: QueueOps's id of the batch; None: the provider does not state it.
        made_at: When the batch was created; None: the provider does not state it.
        lines: How many lines the batch has; 0: the provider does not state it.
        done: How many lines are worked through, including failed lines.
        files: Ids of the files that the provider keeps, by role: `input`, `output`, `errors`.
        error: Why the provider refused the whole batch.
        is_full: The batch was refused because too much is enqueued at the provider: later it may be accepted.
        is_too_large: The batch was refused because of its size or its number of lines: in parts it may be accepted.
        bad_lines: The lines that the error concerns, counted from 0; empty: none or all.
    """

    id: str
    state: str
    ending: Ending | None = None
    intent: UUID | None = None
    made_at: datetime | None = None
    lines: int = 0
    done: int = 0
    failed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    is_full: bool = False
    is_too_large: bool = False
    bad_lines: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LineResult:
    """
    One result.

    Attributes:
        custom_id: The id that the line was sent with.
        status: An HTTP status; 0: the line was not carried out, because its batch ended before.
        body: The provider's answer or error, as a live call would get it.
    """

    custom_id: str
    status: int
    body: Any = field(repr=False)


class Send(Protocol):
    """
    Makes one call under the outbound policy; raises ProviderError for a status that is no success.

    With `on_line` or `on_piece` the body of a success is passed on as it comes in, and is empty in the answer.
    """

    async def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        on_line: Callable[[bytes], None] | None = None,
        on_piece: Callable[[bytes], None] | None = None,
    ) -> OutboundResponse: ...


class BatchApi(Protocol):
    """
    One provider's batch API.

    Attributes:
        most_lines, most_bytes: The most lines and the most bytes that one batch may have.
        appears_seconds: How long it may take until a created batch is in the provider's list.
        names_batches: Whether the list shows QueueOps's id of each batch. If not, only the results show it.
    """

    most_lines: int
    most_bytes: int
    appears_seconds: float
    names_batches: bool

    def access(self, credential: OpenCredential, api_key: str) -> Access: ...
    def line(self, custom_id: str, body: Mapping[str, Any]) -> bytes: ...
    async def prepare(self, send: Send, access: Access, intent: Intent) -> Mapping[str, str]:
        """Upload the batch's input, if that is a step of its own; return the files. Repeating it costs nothing."""
        ...

    async def create(self, send: Send, access: Access, intent: Intent, files: Mapping[str, str]) -> Remote:
        """Create the batch from the files that `prepare` returned; called again only if the list lacks the batch."""
        ...

    def listed(self, send: Send, access: Access, *, since: datetime) -> AsyncIterator[Remote]:
        """Yield the batches created after `since`, and maybe older ones."""
        ...

    async def name_lines(self, send: Send, access: Access, remote: Remote, take: Callable[[str], None]) -> bool:
        """Give each line's custom id to `take`; False: the provider does not show the ids before the batch ends."""
        ...

    async def look(self, send: Send, access: Access, remote_id: str) -> Remote: ...
    async def fetch(
        self, send: Send, access: Access, remote: Remote, take: Callable[[LineResult | None], None]
    ) -> None:
        """Give each result to `take` as it comes in; None for a result that cannot be read."""
        ...

    async def cancel(self, send: Send, access: Access, remote_id: str) -> None: ...
    async def forget(
        self, send: Send, access: Access, remote_id: str, files: Mapping[str, str], *, lost: UUID | None = None
    ) -> None:
        """
        Delete all that the provider keeps of the batch; parts that are already deleted are no error.

        Args:
            lost: The id of the intent, if one of its uploads got no answer: files that it left are deleted, too.
        """
        ...


def refused(payload: Any, status: int, body: Any, secrets: tuple[str, ...]) -> Exception:
    """Return the error of an unsuccessful answer by its status alone, for kinds without a `refuse` of their own."""
    excerpt = one_line(json.dumps(storable(body, secrets)))
    return ProviderError(status, f"answered {status}: {excerpt}", code=f"http_{status}", outcome="answered")


@dataclass(frozen=True, slots=True, eq=False)
class BatchForm:
    """
    Attributes:
        apis: The APIs by the name that a ProviderBatch stores. If a name changed, its open batches would not be found.
        api_of: (payload, its credential's own address or empty) -> the name of the API to use; empty: none, so the
            job goes live.
        compose: (payload, credential) -> the body of its line.
        as_written: (payload, its JSON as the producer wrote it) -> the body of its line with the producer's own text.
            None: `compose` makes the body.
        read: (payload, body, secrets) -> the result of a successful answer; raises ProviderError.
        refuse: (payload, status, body, secrets) -> the error of an unsuccessful answer.
        key_of: (service, credential) -> the key; raises ProviderError if the credential does not fit.
    """

    apis: Mapping[str, BatchApi]
    api_of: Callable[[Any, str], str]
    compose: Callable[[Any, OpenCredential], Mapping[str, Any]]
    read: Callable[[Any, Any, tuple[str, ...]], Done]
    refuse: Callable[[Any, int, Any, tuple[str, ...]], Exception] = refused
    as_written: Callable[[Any, str], Mapping[str, Any]] | None = None
    key_of: Callable[[str, OpenCredential], str] = key_of


def custom_id_of(batch_id: UUID, line: int, job_id: UUID) -> str:
    """
    Return a line's custom id, of at most 64 letters, digits and -, which every provider takes.

    The id contains the job's id: after a restore of the database to an earlier moment, the line's job is still known.
    """
    return f"{batch_id.hex}-{line}-{_short(job_id.int)}"


def batch_of(custom_id: str) -> UUID | None:
    """Return the batch that a line was sent in, by its custom id; None: the id is not QueueOps's."""
    try:
        return UUID(hex=custom_id.partition("-")[0])
    except ValueError:
        return None


def line_of(custom_id: str, batch_id: UUID) -> int | None:
    """Return the line's number; None: the id is of no line of this batch."""
    batch, _, rest = custom_id.partition("-")
    line = rest.partition("-")[0]
    return int(line) if batch == batch_id.hex and line.isascii() and line.isdecimal() and len(line) < 10 else None  # noqa: PLR2004


def job_of(custom_id: str) -> UUID | None:
    """Return the job whose line has this custom id; None: the id is not QueueOps's."""
    try:
        return UUID(int=int(custom_id.split("-")[2], len(DIGITS)))
    except (IndexError, ValueError):
        return None


def _short(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits


class _Seen(Exception):
    """Raised inside a callback to end reading early: what was read is enough."""


async def first_custom_id(api: BatchApi, send: Send, access: Access, remote: Remote) -> str:
    """Return the custom id of the first result of a batch that has ended; empty: none can be read."""
    first: list[str] = []

    def look_at(answer: LineResult | None) -> None:
        if answer is not None:
            first.append(answer.custom_id)
            raise _Seen

    with suppress(_Seen):
        await api.fetch(send, access, remote, look_at)
    return first[0] if first else ""


async def custom_ids(api: BatchApi, send: Send, access: Access, remote: Remote) -> list[str] | None:
    """Return the custom ids of a batch's lines; empty: not QueueOps's; None: not shown yet."""
    found: list[str] = []

    def note(custom_id: str) -> None:
        if batch_of(custom_id) is None:
            found.clear()
            raise _Seen
        found.append(custom_id)

    def note_answer(answer: LineResult | None) -> None:
        if answer is not None and answer.status:
            note(answer.custom_id)

    with suppress(_Seen):
        if remote.ending is not None:
            await api.fetch(send, access, remote, note_answer)
        elif not await api.name_lines(send, access, remote, note):
            return None
    return found


class _Clocked:
    """Makes calls, and notes how far the provider's clock is ahead of the database's, as the first answer tells."""

    def __init__(self, send: Send, now: float) -> None:
        self._send, self._now = send, now
        self.ahead: timedelta | None = None

    async def __call__(self, method: str, url: str, **given: Any) -> OutboundResponse:
        response = await self._send(method, url, **given)
        if self.ahead is None:
            self.ahead = timedelta(seconds=their_now(response.headers) - self._now)
        return response


async def find_batch(
    api: BatchApi, send: Send, access: Access, intent: Intent, *, known: frozenset[str], now: float
) -> Remote | None:
    """
    Look for the provider's batch that was created for this intent.

    If the list does not show QueueOps's id, a candidate has as many lines as the intent, was created later, and belongs
    to no other intent. If it has ended, its first result must have the intent's id. A single candidate that has not
    ended is taken for the intent's batch: otherwise a second would be created and paid for. Its results prove it later.
    The provider's clock says when a batch was created, and its answers say how that clock differs from ours.

    Args:
        known: The provider's ids of batches that belong to other intents.
        now: Seconds since 1970 by the clock of `intent.created_at`.

    Raises:
        ProviderError: Several batches that have not ended may be the intent's: nobody can tell yet which one is.
    """
    working: list[Remote] = []
    clocked = _Clocked(send, now)
    async for remote in api.listed(clocked, access, since=intent.created_at - CLOCK_IS_WRONG):
        if api.names_batches:
            if remote.intent == intent.id:
                return remote
        elif remote.id in known or remote.lines != intent.count:
            continue
        elif remote.ending is None:
            begun = intent.created_at + (clocked.ahead or timedelta())
            if remote.made_at is None or remote.made_at >= begun - LIST_SLACK:
                working.append(remote)
        elif batch_of(await first_custom_id(api, send, access, remote)) == intent.id:
            return remote
    if len(working) > 1:
        raise ProviderError(
            None,
            f"{len(working)} batches of {intent.count} lines work there; their results will tell which one it is",
            code="unclear_batch",
            outcome="unknown",
        )
    return working[0] if working else None
