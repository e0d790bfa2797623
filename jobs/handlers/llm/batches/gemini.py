"""
Gemini's batches: `batchGenerateContent` with the lines in the body, and results in the operation that it returns.

Source: https://ai.google.dev/gemini-api/docs/batch-api, read in November 2026: at most 20 MB in a body, a target of
24 hours; `displayName` holds QueueOps's id and is in the list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any

from jobs.handlers.batch_form import LIST_SLACK, Access, Ending, Intent, LineResult, Remote, Send
from jobs.handlers.llm.gemini import BASE_URL
from queueops.tenancy.secrets.credentials import OpenCredential

from .calls import (
    JSON,
    MAX_PAGES_LISTED,
    InOneBody,
    ask,
    compact,
    list_too_long,
    marked,
    moment,
    number,
    objects,
    part,
    read_object,
    word,
)
from .inlined import Inlined

PAGE_OF_BATCHES = 100

_ENDINGS: Mapping[str, Ending] = {
    "SUCCEEDED": "completed",
    "PARTIALLY_SUCCEEDED": "completed",  # each line's result says whether it succeeded
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "EXPIRED": "expired",
}
# Numbers of google.rpc.Code, each with its HTTP status.
_ERRORS = range(400, 600)
_STATUSES = {1: 0, 3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400, 12: 501, 13: 500, 14: 503, 16: 401}


class GeminiBatches(InOneBody):
    """Batches of generateContent."""

    most_lines = 20_000
    most_bytes = 18_000_000
    appears_seconds = 15.0
    names_batches = True

    def access(self, credential: OpenCredential, api_key: str) -> Access:
        return Access(f"{(credential.base_url or BASE_URL).rstrip('/')}/v1beta", {"x-goog-api-key": api_key})

    def line(self, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return compact({"request": body, "metadata": {"key": custom_id}})

    async def create(self, send: Send, access: Access, intent: Intent, files: Mapping[str, str]) -> Remote:
        response = await send(
            "POST",
            f"{access.root}/models/{intent.model}:batchGenerateContent",
            headers={**access.headers, **JSON},
            body=b'{"batch":{"displayName":'
            + compact(str(intent.id))
            + b',"inputConfig":{"requests":{"requests":['
            + b",".join(intent.lines)
            + b"]}}}}",
        )
        return _remote(read_object(response.body))

    async def listed(self, send: Send, access: Access, *, since: datetime) -> AsyncIterator[Remote]:
        token = ""
        for _ in range(MAX_PAGES_LISTED):
            page = await _read(send, access, f"/batches?pageSize={PAGE_OF_BATCHES}{token and f'&pageToken={token}'}")
            for one in objects(page.get("operations")):
                remote = _remote(one)
                # The order of the list is not documented: after an older batch newer ones may follow.
                if remote.made_at is None or remote.made_at >= since - LIST_SLACK:
                    yield remote
            token = word(page, "nextPageToken")
            if not token:
                return
        raise list_too_long()

    async def look(self, send: Send, access: Access, remote_id: str) -> Remote:
        return _remote(await _read(send, access, f"/{remote_id}", enough=_end_before_results))

    async def fetch(
        self, send: Send, access: Access, remote: Remote, take: Callable[[LineResult | None], None]
    ) -> None:
        def note(text: bytes) -> None:
            take(_line(text))

        told = await _read(send, access, f"/{remote.id}", note, enough=_no_more_results)
        output = part(told, "response") or part(_batch(told), "output")
        if file := word(output, "responsesFile"):
            await send(
                "GET",
                f"{access.root.removesuffix('/v1beta')}/download/v1beta/{file}:download?alt=media",
                headers=access.headers,
                on_line=lambda line: take(_line(line)),
            )

    async def cancel(self, send: Send, access: Access, remote_id: str) -> None:
        await ask(send, access, "POST", f"/{remote_id}:cancel", body={})


class _Enough(Exception):
    """Raised to end reading early: what follows would be no news."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__()
        self.told = told


async def _read(
    send: Send,
    access: Access,
    path: str,
    take: Callable[[bytes], None] = lambda text: None,
    *,
    enough: Callable[[Inlined], dict[str, Any] | None] = lambda inlined: None,
) -> dict[str, Any]:
    """
    Return the JSON object of an answer without the results in it: these go to `take`.

    Args:
        enough: Called with what has been read. If it returns an object, reading ends, and the object is returned.
    """
    inlined = Inlined(take)

    def feed(piece: bytes) -> None:
        inlined.feed(piece)
        told = enough(inlined)
        if told is not None:
            raise _Enough(told)

    try:
        await send("GET", f"{access.root}{path}", headers=access.headers, on_piece=feed)
    except _Enough as early:
        return early.told
    return read_object(inlined.rest())


def _end_before_results(inlined: Inlined) -> dict[str, Any] | None:
    """Return an operation without its results, which may be large; None: it has not told its end and its counts yet."""
    head = inlined.head()
    if head is None:
        return None
    told = read_object(head)
    return told if _remote(told).ending and part(_batch(told), "batchStats") else None


def _no_more_results(inlined: Inlined) -> dict[str, Any] | None:
    return {} if inlined.has_given_all else None


def _batch(told: dict[str, Any]) -> dict[str, Any]:
    """The batch of an operation; some answers are the batch itself."""
    return part(told, "metadata") or told


def _remote(told: dict[str, Any]) -> Remote:
    batch = _batch(told)
    stats, state = part(batch, "batchStats"), word(batch, "state").rpartition("STATE_")[2]
    failed = number(stats, "failedRequestCount")
    return Remote(
        id=word(told, "name"),
        state=state.lower(),
        ending=_ENDINGS.get(state),
        intent=marked(batch, "displayName"),
        made_at=moment(batch, "createTime"),
        lines=number(stats, "requestCount"),
        done=number(stats, "successfulRequestCount") + failed,
        failed=failed,
        error=word(part(told, "error"), "message"),
    )


def _line(line: bytes) -> LineResult | None:
    try:
        return _answer(read_object(line))
    except Exception:  # noqa: BLE001 - whatever it is, the line cannot be read
        return None


def _answer(told: dict[str, Any]) -> LineResult | None:
    # A result without a key is nobody's. Its place proves nothing: Gemini returns results in another order than asked.
    custom_id = word(part(told, "metadata"), "key") or word(told, "key")
    if not custom_id:
        return None
    if response := part(told, "response"):
        return LineResult(custom_id, 200, response)
    error = part(told, "error")
    return LineResult(custom_id, _status_of(number(error, "code")), {"error": error}) if error else None


def _status_of(code: int) -> int:
    """The HTTP status of an error's code, which may be one itself; 0: the line was not carried out."""
    return code if code in _ERRORS else _STATUSES.get(code, 500)
