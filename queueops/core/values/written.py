"""JSON as it was written: parts of a text that keep their digits and order of keys, and a comparison."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from json import decoder
from typing import Any

_IN_ONE_LINE = re.compile(r"[\r\n]+")
_scan = json.JSONDecoder().raw_decode
_decoder: Any = decoder  # the stubs lack these names
_scan_string, _skip_space = _decoder.scanstring, _decoder.WHITESPACE.match


class Written(dict[str, Any]):
    """
    A JSON object together with its original text.

    Attributes:
        text: The object as it was written.
    """

    def __init__(self, value: Mapping[str, Any], text: str) -> None:
        super().__init__(value)
        self.text = text


def dump_written(value: Mapping[str, Any]) -> str:
    """Return an object as JSON in one line; a Written among its values is given as it was written."""
    members = (
        # A line end in the text of JSON is white space: in a string it is escaped.
        f"{_dump(name)}:{_IN_ONE_LINE.sub(' ', one.text) if isinstance(one, Written) else _dump(one)}"
        for name, one in value.items()
    )
    return f"{{{','.join(members)}}}"


def member(text: str, name: str) -> str | None:
    """
    Return the value of a key of a JSON object, as it is written there. If a key comes twice, the last counts, as for
    JSON parsers.

    None: there is no such key, or the text is no JSON object.
    """
    found: str | None = None
    try:
        for key, begin, end in _members(text):
            if key == name:
                found = text[begin:end]
    except (ValueError, IndexError, RecursionError):
        return None
    return found


def with_members(text: str, ours: Mapping[str, Any]) -> str:
    """
    Return a JSON object's text with these members set. An existing key keeps its place, a new one goes to the end; all
    other text stays as it was.

    Raises:
        ValueError: The text is no JSON object.
    """
    pieces, at, left = [], 0, dict(ours)
    for key, begin, end in _members(text):
        if key in ours:
            pieces += [text[at:begin], _dump(ours[key])]
            at = end
            left.pop(key, None)
    last = text.rindex("}")
    rest = ",".join(f"{_dump(name)}:{_dump(value)}" for name, value in left.items())
    before = text[at:last]
    is_first = not "".join([*pieces, before]).strip().removeprefix("{").strip()
    return "".join([*pieces, before, "" if is_first or not rest else ",", rest, text[last:]])


def elements(text: str) -> list[str] | None:
    """Return the elements of a JSON array, each as it is written there; None: the text is no array."""
    found: list[str] = []
    try:
        at = _begin(text)
        if text[at] != "[":
            return None
        at = _skip(text, at + 1)
        while text[at] != "]":
            _, end = _scan(text, at)
            found.append(text[at:end])
            at = _skip(text, end)
            if text[at] == ",":
                at = _skip(text, at + 1)
    except (ValueError, IndexError, RecursionError):
        return None
    return found


def say_the_same(one: Any, other: Any) -> bool:
    """
    Whether two values mean the same to a reader of numbers as doubles.

    jsonb returns 6.02214076e23 as 602214076000000000000000, which Python reads as an int and not as the same double.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(say_the_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(say_the_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) != isinstance(other, float) and {type(one), type(other)} == {int, float}:
        return _as_double(one) == _as_double(other)
    return bool(one == other)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _as_double(number: float) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    at = _begin(text)
    if text[at] != "{":
        raise ValueError(text[at])
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, end = _scan_string(text, at + 1)
        begin = _skip(text, _skip(text, end) + 1)  # past the colon
        _, end = _scan(text, begin)
        yield key, begin, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _begin(text: str) -> int:
    return _skip(text, int(text.startswith("\ufeff")))  # the mark that Windows' programs put before UTF-8


def _skip(text: str, at: int) -> int:
    return int(_skip_space(text, at).end())
