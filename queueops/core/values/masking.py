"""Which words and values are secret: the one rule for what is shown, and for what is kept of a traceback."""

from __future__ import annotations

import json
import re
from typing import Any

MASK = "••••••"
MOST_CHARACTERS_SHOWN = 20_000  # characters of one JSON document on a page

_WORDS = (
    r"authori[sz]ation|cookie|passw(?:or)?d|passphrase|token|secret|api[_-]?key|credential|private[_-]?key"
    r"|access[_-]?key|signature"
)
SECRET_KEY = re.compile(_WORDS, re.IGNORECASE)
# Bounded repetitions: an open one would try every start of a long word against every end.
_SECRET_IN_TEXT = re.compile(
    rf"(?P<name>(?:{_WORDS})[\w-]{{0,40}}+[\"']?\s{{0,3}}+[=:]\s{{0,3}}[\"']?(?:(?:Bearer|Basic)\s{{1,3}})?)[^\s&\"',;]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(?P<name>Bearer|Basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?P<name>\w://[^\s/:@]*:)[^\s/@]+@")


_MASKS = ((_SECRET_IN_TEXT, MASK), (_BEARER, f" {MASK}"), (_PASSWORD_IN_URL, f"{MASK}@"))
PIECE = 1 << 16  # characters that are gone through in one call, which no other thread interrupts: some 10 ms
BEGUN = 1 << 12  # of its end that the next piece goes through, too: something may begin there and end after it


def masked_text(text: str) -> str:
    """The text without the values of `token=…`, `Authorization: Bearer …` and passwords in URLs."""
    for pattern, instead in _MASKS:
        text = _replaced(text, pattern, instead) if len(text) > PIECE else pattern.sub(rf"\g<name>{instead}", text)
    return text


def _replaced(text: str, pattern: re.Pattern[str], instead: str) -> str:
    """As `sub`, in pieces: a megabyte in one call would have all other threads of the process stand still for it."""
    parts: list[str] = []
    begin = kept = 0
    while begin < len(text):
        end = min(begin + PIECE, len(text))
        sure = end - BEGUN if end < len(text) else end
        for found in pattern.finditer(text, begin, end):
            if found.start() >= sure:
                break
            whole = found if found.end() < sure else pattern.match(text, found.start()) or found
            parts += text[kept : whole.start()], whole["name"], instead
            kept = whole.end()
        begin = max(kept, sure)
    return "".join([*parts, text[kept:]])


def masked(value: Any) -> Any:
    """The JSON value with every secret replaced by MASK; numbers stay, so that `max_tokens` can be read."""
    if isinstance(value, dict):
        return {key: _hidden(item) if SECRET_KEY.search(str(key)) else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return masked_text(value) if isinstance(value, str) else value


def unmasked(edited: Any, original: Any) -> Any:
    """
    An edited document with its masks filled in again from the original, place by place.

    A mask that stands where the original has nothing is left: the handler's schema or the provider refuses it.
    """
    if isinstance(edited, dict) and isinstance(original, dict):
        return {key: unmasked(item, original.get(key)) for key, item in edited.items()}
    if isinstance(edited, list) and isinstance(original, list):
        tail = [None] * max(0, len(edited) - len(original))
        return [unmasked(item, old) for item, old in zip(edited, [*original, *tail], strict=False)]
    unchanged = isinstance(edited, str) and MASK in edited and original is not None
    return original if unchanged and edited == masked_or_hidden(edited, original) else edited


def masked_or_hidden(edited: str, original: Any) -> str:
    """What the screen showed in the place of `original`: all of it hidden, or a part of its text."""
    return MASK if edited == MASK or not isinstance(original, str) else masked_text(original)


def pretty(value: Any, *, most: int = MOST_CHARACTERS_SHOWN) -> tuple[str, int]:
    """The masked document as indented text, cut to `most` characters, and how many characters were cut."""
    text = json.dumps(masked(value), indent=2, ensure_ascii=False, default=str)
    return text[:most], max(0, len(text) - most)


def _hidden(value: Any) -> Any:
    return value if value == "" or _is_figures(value) else MASK


def _is_figures(value: Any) -> bool:
    """Whether it is a number, or numbers by name such as the `tokens` of a forecast. A list may be a secret's bytes."""
    if isinstance(value, dict):
        return all(_is_figures(item) for item in value.values())
    return value is None or isinstance(value, (bool, int, float))
