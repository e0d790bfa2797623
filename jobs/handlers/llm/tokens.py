"""Counting tokens before a provider does, and cutting a text into parts that have few enough. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

BYTES_PER_TOKEN = 4.0
# Gemini counts so many for a small picture or a page. For other parts it is a guess; the answer's count replaces it.
TOKENS_PER_OTHER_PART = 258
DEFAULT_OUTPUT_TOKENS = 1_000

_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")
_SENTENCE = re.compile(r"[.!?\u2026][\"'\u2019\u201d)\]]*\s+|[\u3002\uff01\uff1f]\s*|\n\s*")
_SPACE = re.compile(r"\s+")
# These mark each byte of a character in UTF-8 after its first.
_CONTINUATION_MASK, _CONTINUATION = 0b1100_0000, 0b1000_0000


def count_tokens(text: str, *, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """Return an estimate: UTF-8 bytes / `bytes_per_token`, rounded up."""
    return tokens_of_bytes(len(text.encode()), bytes_per_token=bytes_per_token)


def tokens_of_bytes(size: int, *, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """Return the same estimate for a text of `size` bytes."""
    return math.ceil(size / bytes_per_token)


def count_content_tokens(contents: Any, *, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """Estimate a request's contents: all its texts together, and TOKENS_PER_OTHER_PART for each part without any."""
    text = "".join(_texts(contents))
    return count_tokens(text, bytes_per_token=bytes_per_token) + TOKENS_PER_OTHER_PART * _count_other_parts(contents)


def split_text(text: str, max_tokens: int, *, bytes_per_token: float = BYTES_PER_TOKEN) -> list[str]:
    """
    Cut a text, at good places, into few parts of at most `max_tokens`.

    A part ends after the last paragraph that fits, if that fills at least half of it; otherwise after the
    last sentence, word or, failing all, character. Joined, the parts are the text again.

    Raises:
        ValueError: Not even every single character fits.
    """
    budget = math.floor(max_tokens * bytes_per_token)
    if budget < 4:  # noqa: PLR2004 (the longest character in UTF-8)
        raise ValueError(f"parts of {max_tokens} tokens would not hold one character")
    content = text.encode()
    parts = []
    start = 0
    while len(content) - start > budget:
        window = _whole_characters(content, start, budget)
        part = window[: _border(window)]
        parts.append(part)
        start += len(part.encode())
    parts.append(content[start:].decode())
    return parts


def _whole_characters(content: bytes, start: int, size: int) -> str:
    end = start + size
    while content[end] & _CONTINUATION_MASK == _CONTINUATION:  # the middle of a character
        end -= 1
    return content[start:end].decode()


def _border(window: str) -> int:
    for pattern in (_PARAGRAPH, _SENTENCE, _SPACE):
        last = 0
        for match in pattern.finditer(window, len(window) // 2):
            last = match.end()
        if last:
            return last
    return len(window)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name == "text" and isinstance(entry, str):
                yield entry
            else:
                yield from _texts(entry)


def _count_other_parts(contents: Any) -> int:
    parts = [part for content in contents for part in content.get("parts", ())]
    return sum("text" not in part for part in parts)
