"""Sends the rows of the outbox, as steps; see `queueops_client.exchange`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from queueops_client.errors import ApiError, ClientError, ServerError
from queueops_client.exchange import Answer, Pause, Steps, exchange, request_of
from queueops_client.retry import NEVER, Retry
from queueops_client.usage.cache import Heard
from queueops_client.usage.clock import ServerClock, as_text
from queueops_client.usage.outbox import Claimed, Outbox, Settled

INGEST = "/api/v1/usage/ingest/"
CANCEL = "/api/v1/usage/cancel/"
BATCH = 1000  # the most that one request may hold
FLUSH_TIMEOUT_SECONDS = 30.0
IDLE_SECONDS = 30.0  # between two searches for rows of processes that died
CLOCK_ATTEMPTS = 3  # how often a row is sent while the server finds its time wrong

SENT = {"accepted", "duplicate", "over_limit"}
TIMES = {"from_future", "too_old"}
# These statuses blame the content. Every other refusal concerns the sender or the address, and no row.
CONTENT = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Idle:
    """A step: wait until there is something to send, or for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Flushed:
    """
    The outcome of a flush; `pending`: rows that are still to be sent.
    """

    sent: int = 0
    rejected: int = 0
    pending: int = 0


class Pace:
    """
    When to try again after a failure: truncated exponential backoff with full jitter, never before Retry-After.

    Attributes:
        paused: Why a new try alone will not help; None: it may help. The try is made in any case, because the token may
            be renewed.
    """

    def __init__(self, retry: Retry | None = None) -> None:
        self.retry = retry or Retry(base_seconds=1.0, cap_seconds=60.0)
        self.failures = 0
        self.last_error: ClientError | None = None

    @property
    def paused(self) -> str | None:
        error = self.last_error
        if isinstance(error, ApiError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return None if error.status in PASSING else str(error)
        return None

    def succeeded(self) -> None:
        self.failures, self.last_error = 0, None

    def failed(self, error: ClientError) -> float:
        """Return the seconds until the next attempt."""
        was_paused = self.paused
        self.failures, self.last_error = self.failures + 1, error
        if self.paused and not was_paused:
            logger.error("usage is not sent, and is kept: %s", error)
        least = getattr(error, "retry_after", None) or 0.0
        return float(least + self.retry.backoff_seconds(self.failures))


class Flusher:
    """
    Args:
        only_user: The only user whose rows may be sent; None: the rows of all users may.
    """

    def __init__(self, outbox: Outbox, clock: ServerClock, *, only_user: str | None) -> None:
        self.outbox = outbox
        self.clock = clock
        self.pace = Pace()
        self._only_user = only_user

    def ask(self, method: str, path: str, *, retry: Retry = NEVER, **options: Any) -> Steps[Answer]:
        """Send a request that may be repeated, and learn the server's time from its answer."""
        began = self.clock.local()
        answer: Answer = yield from exchange(request_of(method, path, is_safe=True, **options), retry)
        self.clock.learn(answer.headers, began=began)
        return answer

    def flush(self) -> Steps[Flushed]:
        """
        Send all rows that no other process is sending.

        Raises:
            ClientError: Some rows could not be sent; they are kept.
        """
        try:
            done = yield from self._flush()
        except ClientError as error:
            self.pace.failed(error)
            raise
        self.pace.succeeded()
        return done

    def keep_flushing(self, *, every_seconds: float) -> Steps[None]:
        """
        Send rows without end, as they are written.

        Args:
            every_seconds: How long rows gather before they are sent together.
        """
        while True:
            try:
                yield from self._flush()
            except ClientError as error:
                yield Pause(self.pace.failed(error))
            except Exception as error:  # an error would end the thread, and leave every row unsent, unnoticed
                logger.exception("usage could not be sent, and is kept")
                yield Pause(self.pace.failed(ClientError(repr(error))))
            else:
                self.pace.succeeded()
                yield Idle(IDLE_SECONDS)
                yield Pause(every_seconds)

    def _flush(self) -> Steps[Flushed]:
        self.outbox.adopt()
        yield from self._give_back()
        sent = rejected = 0
        more = True
        while more and (rows := self.outbox.claim(BATCH, user_id=self._only_user)):
            refused: list[tuple[Claimed, ApiError]] = []
            try:
                settled = yield from self._send(rows, refused)
                if refused and not any(one.status == "sent" for one in settled):
                    # If the server accepts no row at all, the rows are not to blame.
                    raise refused[0][1]
                settled += self._set_apart(refused)
            finally:
                self.outbox.let_go(rows)
            # Stop after rows that fill no batch, even if new ones have come: otherwise these would be sent one by one.
            more = len(rows) == BATCH or any(one.status == "ready" for one in settled)
            sent += sum(one.status == "sent" for one in settled)
            rejected += sum(one.status == "rejected" for one in settled)
        return Flushed(sent, rejected, self.outbox.pending(user_id=self._only_user))

    def _give_back(self) -> Steps[None]:
        for reservation_id in self.outbox.releases():
            try:
                yield from self.ask("POST", CANCEL, json={"reservation_id": reservation_id})
            except ApiError as error:
                if error.status not in {HTTPStatus.NOT_FOUND, *CONTENT}:
                    raise
            self.outbox.released(reservation_id)

    def _send(self, rows: Sequence[Claimed], refused: list[tuple[Claimed, ApiError]]) -> Steps[list[Settled]]:
        """Send rows together. If they are refused as a whole, send halves, down to the rows that are to blame."""
        versions = self.outbox.versions()
        knew_the_time = self.clock.offset is not None
        try:
            events = [self._event(row) for row in rows]
            answer = yield from self.ask("POST", INGEST, json=events, timeout=FLUSH_TIMEOUT_SECONDS)
        except ApiError as error:
            if error.status not in CONTENT:
                raise
            if len(rows) == 1:
                refused.append((rows[0], error))
                return []
            half = len(rows) // 2
            first = yield from self._send(rows[:half], refused)
            return first + (yield from self._send(rows[half:], refused))
        settled, heard = _understood(answer, rows, knew_the_time=knew_the_time)
        self.outbox.settle(settled, heard, versions=versions)
        return settled

    def _set_apart(self, refused: Sequence[tuple[Claimed, ApiError]]) -> list[Settled]:
        settled = [Settled(row.event_id, "rejected", error.code, str(error)) for row, error in refused]
        if settled:
            self.outbox.settle(settled, versions={})
        return settled

    def _event(self, row: Claimed) -> dict[str, Any]:
        at = self.clock.time_of_event(row.at, offset=row.clock_offset, floor=row.floor)
        event = {"event_id": row.event_id, "user_id": row.user_id, "tokens": row.tokens, "ts": as_text(at)}
        if row.reservation_id:
            event["reservation_id"] = row.reservation_id
        if row.service:
            event["service"] = row.service
        return event


def _understood(
    answer: Answer, rows: Sequence[Claimed], *, knew_the_time: bool
) -> tuple[list[Settled], dict[str, Heard]]:
    try:
        results = answer.body["results"]
        settled = [
            _settled(row, result, knew_the_time=knew_the_time) for row, result in zip(rows, results, strict=True)
        ]
        heard = {str(UUID(one["user_id"])): Heard.of(one) for one in answer.body.get("usage", ())}
    except (KeyError, TypeError, ValueError) as error:
        # A proxy may have answered, so no row is taken for sent.
        raise ServerError(
            "unexpected_answer", f"The answer to usage events was not understood: {error!r}", status=answer.status
        ) from error
    return settled, heard


def _settled(row: Claimed, result: dict[str, Any], *, knew_the_time: bool) -> Settled:
    if UUID(result["event_id"]) != UUID(row.event_id):
        raise ValueError(f"{result['event_id']} instead of {row.event_id}")
    if result["status"] in SENT:
        return Settled(row.event_id, "sent")
    reason = str(result.get("reason") or result["status"])
    again = reason in TIMES and not knew_the_time and row.attempts < CLOCK_ATTEMPTS
    return Settled(row.event_id, "ready" if again else "rejected", reason, result.get("message"))
