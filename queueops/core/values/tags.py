"""Tags: short texts by which jobs and batches are found again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from django.core.exceptions import ValidationError
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

MAX_TAGS = 20  # of one job or batch
MAX_TAG_LENGTH = 100  # characters
SEPARATOR = ","  # between tags in one text: a query parameter, a cell, a form's field
RULE = f"1 to {MAX_TAG_LENGTH} printable characters, without commas and without spaces at its ends"

_UNFIT = re.compile(r"[^\S ]|[,\x00-\x1f\x7f]")


def checked_tag(text: str) -> str:
    """
    Raises:
        PydanticCustomError: The text breaks RULE.
    """
    if not 0 < len(text) <= MAX_TAG_LENGTH or text != text.strip() or SEPARATOR in text or not text.isprintable():
        raise PydanticCustomError("tag", RULE)
    return text


def split_tags(text: str) -> list[str]:
    """Return the texts between commas, without the spaces around them."""
    return [part.strip() for part in text.split(SEPARATOR)]


def entered_tags(text: str | None) -> list[str]:
    """
    Return the tags of a form's field or of a query parameter.

    Raises:
        ValidationError: A text is no tag; the message names the first such text.
    """
    tags = split_tags(text) if text else []
    for tag in tags:
        try:
            checked_tag(tag)
        except PydanticCustomError as error:
            raise ValidationError(f"{tag!r}: {error.message()}") from None
    return tags


def field_tag(field: str, value: object) -> str:
    """
    Return the tag of a payload's field: `order_id=A-17`. Characters that no tag may have become spaces. A long tag's
    end is cut.
    """
    return _UNFIT.sub(" ", f"{field}={value}")[:MAX_TAG_LENGTH].strip()


def _each_once(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tags))


TagText = Annotated[str, AfterValidator(checked_tag)]
Tags = Annotated[tuple[TagText, ...], Field(max_length=MAX_TAGS), AfterValidator(_each_once)]
