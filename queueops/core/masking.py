"""Which words of a text are secret: the one rule for what is shown and for what is kept of a traceback."""

from __future__ import annotations

import re

MASK = "••••••"

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


def masked_text(text: str) -> str:
    """The text without the values of `token=…`, `Authorization: Bearer …` and passwords in URLs."""
    text = _SECRET_IN_TEXT.sub(rf"\g<name>{MASK}", text)
    text = _BEARER.sub(rf"\g<name> {MASK}", text)
    return _PASSWORD_IN_URL.sub(rf"\g<name>{MASK}@", text)
