"""Work on many lines a slice at a time, so that other calls are answered in between."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

SLICE_LINES = 250

_Item = TypeVar("_Item")


async def slices(items: Sequence[_Item], size: int = SLICE_LINES) -> AsyncIterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
        await asyncio.sleep(0)


async def parse_with_list(body: bytes, name: str) -> tuple[Any, list[Any]]:
    """
    Read a JSON body whose bulk is one list: return the body with that list empty, and the list.

    Raises:
        ValueError: The body is not JSON, or has no such list.
    """
    text = body.decode()
    start = re.search(rf'"{name}"\s*:\s*\[', text)
    if start is None:
        raise ValueError(f"there is no list {name}")
    decoder, items, position = json.JSONDecoder(), [], _skip(text, start.end())
    while text[position : position + 1] != "]":
        item, position = decoder.raw_decode(text, position)
        items.append(item)
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != "]":
            raise ValueError(f"the list {name} does not end")
        if len(items) % SLICE_LINES == 0:
            await asyncio.sleep(0)
    return json.loads(text[: start.end()] + text[position:]), items


_SPACE = re.compile(r"\s*")


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position
