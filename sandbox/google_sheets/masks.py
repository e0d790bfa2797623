"""Field masks: `fields=sheets.properties(title,sheetId),spreadsheetId`."""

from collections.abc import Collection
from typing import Any

Mask = dict[str, "Mask"]

MAX_DEPTH = 20


class InvalidMask(Exception):
    """Holds the path that cannot be found, or the whole text when it cannot be parsed."""


def parse(text: str) -> Mask:
    """
    Return the mask as a tree; an empty branch means everything below.

    Raises:
        InvalidMask: The text cannot be parsed.
    """
    mask, rest = _parse_list(text, 0)
    if rest:
        raise InvalidMask(text)
    return mask


def check(mask: Mask, known: Collection[str]) -> None:
    """
    Check the outermost fields against those an answer can have.

    Raises:
        InvalidMask: A field is unknown.
    """
    for name in mask:
        if name != "*" and name not in known:
            raise InvalidMask(name)


def apply(mask: Mask, value: Any) -> Any:
    if not mask or "*" in mask:
        return value
    if isinstance(value, list):
        return [apply(mask, entry) for entry in value]
    if isinstance(value, dict):
        return {name: apply(branch, value[name]) for name, branch in mask.items() if name in value}
    return value


def _parse_list(text: str, depth: int) -> tuple[Mask, str]:
    if depth > MAX_DEPTH:
        raise InvalidMask(text)
    mask: Mask = {}
    while True:
        name, text = _name(text)
        branch = mask.setdefault(name, {})
        while text[:1] in {".", "/"} and text:
            name, text = _name(text[1:])
            branch = branch.setdefault(name, {})
        if text.startswith("("):
            inner, text = _parse_list(text[1:], depth + 1)
            if not text.startswith(")"):
                raise InvalidMask(text)
            branch.update(inner)
            text = text[1:]
        if not text.startswith(","):
            return mask, text
        text = text[1:]


def _name(text: str) -> tuple[str, str]:
    text = text.strip()
    length = next((index for index, letter in enumerate(text) if letter in "./,()"), len(text))
    if length == 0:
        raise InvalidMask(text)
    return text[:length].strip(), text[length:].strip()
