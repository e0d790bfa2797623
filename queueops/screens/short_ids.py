"""Ids as lists show them."""

from __future__ import annotations

import re

from django import template

UUID_IN_TEXT = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{4}([0-9a-f]{8})\b")

register = template.Library()


@register.filter
def short_ids(text: object) -> str:
    """Return `http.request …de4aab73` for `http.request 01a20a89-f496-7130-a546-259cde4aab73`."""
    return UUID_IN_TEXT.sub(r"…\1", str(text))
