"""
OpenAI's Batch API: a file of lines goes up, two files of results come down.

Source: https://platform.openai.com/docs/guides/batch, read in November 2026: 50,000 requests and 200 MB a file, at most
24 hours; `metadata` takes 16 pairs and is in the list of batches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

from jobs.handlers.batch_form import LIST_SLACK, Access, Ending, Intent, LineResult, Remote, Send
from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.openai import root_of
from queueops.tenancy.secrets.credentials import OpenCredential

from .calls import (
    LIST_TOO_LONG,
    MARK,
    ask,
    compact,
    delete,
    listed_objects,
    marked,
    moment,
    named,
    number,
    objects,
    part,
    read_object,
    word,
)

PAGE_OF_BATCHES = 100
PAGE_OF_FILES = 1_000
TOO_MANY_LINES = frozenset({"too_many_tasks", "too_many_requests"})
NOT_THERE = frozenset({404, 405, 501})
ERRORS = range(400, 600)
STATUSES = {
    "batch_expired": 0,
    "batch_cancelled": 0,
    "batch_canceled": 0,
    "request_timeout": 504,
    "rate_limit_exceeded": 429,
    "invalid_request_error": 400,
}

_ENDINGS: Mapping[str, Ending] = {
    "completed": "completed",
    "expired": "expired",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "failed": "failed",
}


class OpenAiBatches:
    """Batches of one endpoint: `/v1/chat/completions`, `/v1/embeddings`, `/v1/responses`."""

    most_lines = 50_000
    most_bytes = 200_000_000
    appears_seconds = 15.0
    names_batches = True

    def __init__(self, *, endpoint: str) -> None:
        self._endpoint = endpoint

    def access(self, credential: OpenCredential, api_key: str) -> Access:
        return Access(root_of(credential.base_url), {"Authorization": f"Bearer {api_key}"})

    def line(self, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return compact({"custom_id": custom_id, "method": "POST", "url": self._endpoint, "body": body})

    async def prepare(self, send: Send, access: Access, intent: Intent) -> Mapping[str, str]:
        boundary = intent.id.hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{_file_name(intent.id)}"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        response = await send(
            "POST",
            f"{access.root}/files",
            headers={**access.headers, "Content-Type": f"multipart/form-data; boundary={boundary}"},
            body=b"".join([head.encode(), b"\n".join(intent.lines), f"\r\n--{boundary}--\r\n".encode()]),
        )
        return {"input": named(response.body)}

    async def create(self, send: Send, access: Access, intent: Intent, files: Mapping[str, str]) -> Remote:
        asked = {
            "input_file_id": files["input"],
            "endpoint": self._endpoint,
            "completion_window": "24h",
            "metadata": {MARK: str(intent.id)},
        }
        return _remote(await ask(send, access, "POST", "/batches", body=asked))

    async def listed(self, send: Send, access: Access, *, since: datetime) -> AsyncIterator[Remote]:
        async for one in listed_objects(send, access, "/batches?", limit=PAGE_OF_BATCHES):
            remote = _remote(one)
            if remote.made_at is not None and remote.made_at < since - LIST_SLACK:
                return
            yield remote

    async def name_lines(self, send: Send, access: Access, remote: Remote, take: Callable[[str], None]) -> bool:
        def note(line: bytes) -> None:
            with suppress(ProviderError):
                take(word(read_object(line), "custom_id"))

        await send(
            "GET", f"{access.root}/files/{remote.files.get('input')}/content", headers=access.headers, on_line=note
        )
        return True

    async def look(self, send: Send, access: Access, remote_id: str) -> Remote:
        return _remote(await ask(send, access, "GET", f"/batches/{remote_id}"))

    async def fetch(
        self, send: Send, access: Access, remote: Remote, take: Callable[[LineResult | None], None]
    ) -> None:
        gone: ProviderError | None = None
        for role in ("output", "errors"):
            if file := remote.files.get(role):
                try:
                    await send(
                        "GET",
                        f"{access.root}/files/{file}/content",
                        headers=access.headers,
                        on_line=lambda line: take(_answer(line)),
                    )
                except ProviderError as error:
                    if error.status != HTTPStatus.NOT_FOUND:
                        raise
                    gone = error  # the other file is read all the same: its lines would be paid for once more
        if gone is not None:
            raise gone

    async def cancel(self, send: Send, access: Access, remote_id: str) -> None:
        await ask(send, access, "POST", f"/batches/{remote_id}/cancel", body={})

    async def forget(
        self, send: Send, access: Access, remote_id: str, files: Mapping[str, str], *, lost: UUID | None = None
    ) -> None:
        for file in {*files.values(), *(await self._uploaded(send, access, lost) if lost else ())}:
            await delete(send, access, f"/files/{file}")

    async def _uploaded(self, send: Send, access: Access, intent: UUID) -> set[str]:
        """The ids of the files that were uploaded for a batch, found by the files' name."""
        listed = listed_objects(send, access, "/files?purpose=batch&", limit=PAGE_OF_FILES)
        named: set[str] = set()
        try:
            async for one in listed:
                if word(one, "filename") == _file_name(intent):
                    named.add(word(one, "id"))
        except ProviderError as error:
            # A compatible server may list no files. Files behind the last page that is read stay.
            if error.status not in NOT_THERE and error.code != LIST_TOO_LONG:
                raise
        return named


def _file_name(intent: UUID) -> str:
    return f"{intent}.jsonl"


def _remote(told: dict[str, Any]) -> Remote:
    counts, files = part(told, "request_counts"), {"input": "input_file_id", "output": "output_file_id"}
    files["errors"] = "error_file_id"
    wrong = objects(part(told, "errors").get("data"))
    failed = number(counts, "failed")
    return Remote(
        id=word(told, "id"),
        state=word(told, "status"),
        ending=_ENDINGS.get(word(told, "status").lower()),
        intent=marked(part(told, "metadata"), MARK),
        made_at=moment(told, "created_at"),
        lines=number(counts, "total"),
        done=number(counts, "completed") + failed,
        failed=failed,
        files={role: word(told, name) for role, name in files.items() if word(told, name)},
        error="; ".join(word(one, "message") for one in wrong[:3]),
        is_full=any(word(one, "code") == "token_limit_exceeded" for one in wrong),
        is_too_large=any(word(one, "code") in TOO_MANY_LINES for one in wrong),
        bad_lines=frozenset(number(one, "line") - 1 for one in wrong if number(one, "line")),
    )


def _answer(line: bytes) -> LineResult | None:
    try:
        told = read_object(line)
    except ProviderError:
        return None
    custom_id, response, error = word(told, "custom_id"), part(told, "response"), told.get("error")
    status, body = number(response, "status_code"), response.get("body")
    if not custom_id or not (response or error):
        return None
    if body or not error:
        # A response without a status, or with one that is none, is read as an answer: it may have been billed.
        return LineResult(custom_id, status or HTTPStatus.OK, body if "body" in response else response)
    # vLLM has the error beside a response without a body.
    error = part(error, "error") or error
    if status < HTTPStatus.BAD_REQUEST:
        status = _status_of(error)
    return LineResult(custom_id, status, {"error": error})


def _status_of(error: Any) -> int:
    """The HTTP status of an error without a response; 0: the line was not carried out, because its batch ended."""
    told = error if isinstance(error, dict) else {}
    code = number(told, "code")
    return code if code in ERRORS else STATUSES.get(word(told, "code"), HTTPStatus.INTERNAL_SERVER_ERROR)
