"""The common part of the batch APIs: JSON that is sent and read, and our id in a provider's words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from uuid import UUID

from jobs.handlers.batch_form import Access, Send
from jobs.handlers.errors import ProviderError
from queueops.core.values.written import dump_written

MARK = "queueops_batch"  # the name under which a provider keeps our id, where it keeps names
JSON = {"Content-Type": "application/json"}
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
LIST_SLACK = timedelta(minutes=2)
MAX_PAGES_LISTED = 20


async def ask(send: Send, access: Access, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
    """Make a call of JSON and return the object that it was answered with."""
    text = None if body is None else compact(body)
    response = await send(method, f"{access.root}{path}", headers={**access.headers, **JSON}, body=text)
    return read_object(response.body)


async def listed_objects(
    send: Send, access: Access, path: str, *, limit: int, after: str = "after"
) -> AsyncIterator[dict[str, Any]]:
    """
    Yield what a list tells, of at most MAX_PAGES_LISTED pages.

    Args:
        path: Of the list, up to where the parameters of a page follow: it ends in `?` or `&`.
        limit: Objects of a page.
        after: The parameter that names the last object of the page before.
    """
    last = ""
    for _ in range(MAX_PAGES_LISTED):
        page = await ask(send, access, "GET", f"{path}limit={limit}{last and f'&{after}={last}'}")
        found = objects(page.get("data"))
        for one in found:
            yield one
        if page.get("has_more") is not True or not found:
            return
        last = word(found[-1], "id")


async def delete(send: Send, access: Access, path: str) -> None:
    """Delete what may be gone already."""
    try:
        await send("DELETE", f"{access.root}{path}", headers=access.headers)
    except ProviderError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def compact(value: Any) -> bytes:
    # As it is: escapes would make a line of another alphabet three times as long, and the batch too large. But for what
    # some readers take for the end of a line (U+0085, U+2028, U+2029), which stands in texts alone.
    text = dump_written(value) if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
    return text.translate(_LINE_ENDS).encode()


def read_object(body: bytes) -> dict[str, Any]:
    """
    Raises:
        ProviderError: It is no JSON object.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderError(None, "the answer is no JSON object", code="malformed_answer", outcome="unknown")
    return found


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of what should be a list of them."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def part(value: Any, name: str) -> dict[str, Any]:
    """The object of this name; empty: there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def number(value: Mapping[str, Any], name: str) -> int:
    """A count as the provider tells it, in digits or as text; 0: it does not."""
    found = value.get(name)
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    return found if type(found) is int and found >= 0 else 0


def word(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def moment(value: Mapping[str, Any], name: str) -> datetime | None:
    """A moment in seconds since 1970 or as text; None: there is none."""
    found = value.get(name)
    try:
        if type(found) is int:
            return datetime.fromtimestamp(found, UTC)
        told = datetime.fromisoformat(found) if isinstance(found, str) else None
    except (ValueError, OverflowError, OSError):
        return None
    return told if told and told.tzinfo else None


def marked(value: Mapping[str, Any], name: str) -> UUID | None:
    """Our id of a batch, where a provider keeps it."""
    try:
        return UUID(word(value, name))
    except ValueError:
        return None
