"""The common part of the batch APIs: sending and reading JSON, and reading QueueOps's id of a batch."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

from jobs.handlers.batch_form import Access, Intent, Remote, Send
from jobs.handlers.errors import ProviderError
from jobs.handlers.http.answers import storable
from queueops.core.values.lines import on_one_line
from queueops.core.values.written import dump_written

MARK = "queueops_batch"  # the name under which a provider keeps our id, where it keeps names
JSON = {"Content-Type": "application/json"}
MAX_PAGES_LISTED = 200
LIST_TOO_LONG = "list_too_long"
MAX_ROW_COUNT = 2_147_483_647  # the largest count that a row takes


class InOneBody:
    """The steps of a batch whose lines go up in the body that creates it: no files, and no names before its end."""

    async def prepare(self, send: Send, access: Access, intent: Intent) -> Mapping[str, str]:
        return {}

    async def name_lines(self, send: Send, access: Access, remote: Remote, take: Callable[[str], None]) -> bool:
        return False

    async def forget(
        self, send: Send, access: Access, remote_id: str, files: Mapping[str, str], *, lost: UUID | None = None
    ) -> None:
        if remote_id:
            await delete(send, access, f"/{remote_id}")


async def ask(send: Send, access: Access, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
    """Send JSON, or no body, and return the JSON object of the answer."""
    text = None if body is None else compact(body)
    response = await send(method, f"{access.root}{path}", headers={**access.headers, **JSON}, body=text)
    return read_object(response.body)


async def listed_objects(
    send: Send, access: Access, path: str, *, limit: int, after: str = "after"
) -> AsyncIterator[dict[str, Any]]:
    """
    Yield the objects of a list, from at most MAX_PAGES_LISTED pages.

    Args:
        path: The list's path, to which the parameters of a page are added: it ends in `?` or `&`.
        limit: How many objects a page has.
        after: The parameter that names the last object of the page before.

    Raises:
        ProviderError: A call failed, or the list goes on after these pages.
    """
    last = ""
    for _ in range(MAX_PAGES_LISTED):
        page = await ask(send, access, "GET", f"{path}limit={limit}{last and f'&{after}={last}'}")
        found = objects(page.get("data"))
        for one in found:
            yield one
        before, last = last, word(found[-1], "id") if found else ""
        if page.get("has_more") is not True or last in {"", before}:  # the same page again: the server has no others
            return
    raise list_too_long()


def list_too_long() -> ProviderError:
    """Return the error for a list that is too long to be read to its end: the batch may be in the unread part."""
    told = f"its list goes on after {MAX_PAGES_LISTED} pages"
    return ProviderError(None, told, code=LIST_TOO_LONG, outcome="answered")


async def delete(send: Send, access: Access, path: str) -> None:
    """Delete an object that may be deleted already."""
    try:
        await send("DELETE", f"{access.root}{path}", headers=access.headers)
    except ProviderError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def compact(value: Any) -> bytes:
    # Letters are not escaped: otherwise a line in another alphabet would be three times as long, and the batch too
    # large.
    text = dump_written(value) if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)
    return on_one_line(text).encode()


def read_object(body: bytes) -> dict[str, Any]:
    """
    Raises:
        ProviderError: The body is no JSON object.
    """
    try:
        found = _parsed(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderError(None, "the answer is no JSON object", code="malformed_answer", outcome="unknown")
    return found


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except UnicodeDecodeError:  # otherwise one broken letter would cost a whole answer that is paid for
        return json.loads(body.decode("utf-8-sig", errors="replace"))


def named(body: bytes) -> str:
    """
    Return the id of what an answer says was made.

    Raises:
        ProviderError: The answer names nothing.
    """
    found = word(read_object(body), "id")
    if not found:
        raise ProviderError(None, "the answer names no id", code="malformed_answer", outcome="unknown")
    return found


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a value that should be a list of them."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def part(value: Any, name: str) -> dict[str, Any]:
    """The object of this name; empty: there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def number(value: Mapping[str, Any], name: str) -> int:
    """Return a count, which may be a number or a text of digits; 0: there is none."""
    found = value.get(name)
    if isinstance(found, str) and found.isdecimal() and len(found) <= len(str(MAX_ROW_COUNT)):
        found = int(found)
    return min(found, MAX_ROW_COUNT) if type(found) is int and found >= 0 else 0


def word(value: Mapping[str, Any], name: str) -> str:
    """Return a text, with characters replaced that the database refuses; empty: there is none."""
    found = value.get(name)
    return str(storable(found, ())) if isinstance(found, str) else ""


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
    """Return QueueOps's id of a batch; None: the provider does not return it."""
    try:
        return UUID(word(value, name))
    except ValueError:
        return None
