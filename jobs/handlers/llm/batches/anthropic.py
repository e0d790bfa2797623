"""
Anthropic's Message Batches: the lines go up in one body, the results come down as a file of lines.

Source: https://docs.claude.com/en/docs/build-with-claude/batch-processing, read in November 2026: 100,000 requests or
256 MB a batch, at most 24 hours. A batch and its place in the list have no room for QueueOps's id. If the answer to its
creation was lost, a batch is found by the ids of its results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any

from jobs.handlers.batch_form import LIST_SLACK, Access, Ending, Intent, LineResult, Remote, Send
from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.anthropic import BASE_URL, VERSION
from queueops.tenancy.secrets.credentials import OpenCredential

from .calls import JSON, InOneBody, ask, compact, listed_objects, moment, number, part, read_object, word

PAGE_OF_BATCHES = 100

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


class AnthropicBatches(InOneBody):
    """Batches of the Messages API."""

    most_lines = 100_000
    most_bytes = 200_000_000
    appears_seconds = 15.0
    names_batches = False

    def access(self, credential: OpenCredential, api_key: str) -> Access:
        root = (credential.base_url or BASE_URL).rstrip("/")
        root = root if root.endswith("/v1") else f"{root}/v1"
        return Access(f"{root}/messages/batches", {"x-api-key": api_key, "anthropic-version": VERSION})

    def line(self, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return compact({"custom_id": custom_id, "params": body})

    async def create(self, send: Send, access: Access, intent: Intent, files: Mapping[str, str]) -> Remote:
        response = await send(
            "POST",
            access.root,
            headers={**access.headers, **JSON},
            body=b'{"requests":[' + b",".join(intent.lines) + b"]}",
        )
        return _remote(read_object(response.body))

    async def listed(self, send: Send, access: Access, *, since: datetime) -> AsyncIterator[Remote]:
        async for one in listed_objects(send, access, "?", limit=PAGE_OF_BATCHES, after="after_id"):
            remote = _remote(one)
            if remote.made_at is not None and remote.made_at < since - LIST_SLACK:
                return
            yield remote

    async def look(self, send: Send, access: Access, remote_id: str) -> Remote:
        return _remote(await ask(send, access, "GET", f"/{remote_id}"))

    async def fetch(
        self, send: Send, access: Access, remote: Remote, take: Callable[[LineResult | None], None]
    ) -> None:
        await send(
            "GET",
            f"{access.root}/{remote.id}/results",
            headers=access.headers,
            on_line=lambda line: take(_answer(line)),
        )

    async def cancel(self, send: Send, access: Access, remote_id: str) -> None:
        await ask(send, access, "POST", f"/{remote_id}/cancel")


def _remote(told: dict[str, Any]) -> Remote:
    counts = _counts(told)
    return Remote(
        id=word(told, "id"),
        state=word(told, "processing_status"),
        ending=_ending(told, counts) if word(told, "processing_status") == "ended" else None,
        made_at=moment(told, "created_at"),
        lines=sum(counts.values()),
        done=counts["succeeded"] + counts["errored"],
        failed=counts["errored"],
    )


def _ending(told: dict[str, Any], counts: Mapping[str, int]) -> Ending:
    if told.get("cancel_initiated_at"):
        return "cancelled"
    return "expired" if counts["expired"] else "completed"


def _counts(told: dict[str, Any]) -> dict[str, int]:
    counts = part(told, "request_counts")
    return {name: number(counts, name) for name in ("processing", "succeeded", "errored", "canceled", "expired")}


def _answer(line: bytes) -> LineResult | None:
    try:
        told = read_object(line)
    except ProviderError:
        return None
    custom_id, result = word(told, "custom_id"), part(told, "result")
    if not custom_id:
        return None
    match result.get("type"):
        case "succeeded":
            return LineResult(custom_id, 200, result.get("message"))
        case "errored":
            error = part(result, "error")
            kind = word(part(error, "error") or error, "type")
            return LineResult(custom_id, _STATUSES.get(kind, 500), error if "error" in error else {"error": error})
        case "canceled" | "expired":
            return LineResult(custom_id, 0, None)
    return None
