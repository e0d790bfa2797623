"""
Encrypts payloads, results and texts that hold pieces of them, with the keys of QUEUEOPS_PAYLOAD_KEYS.

A sealed value is replaced by a token, `queueops!sealed!<key's name>!<Fernet token>`, which in JSON is a string. The
encrypted content is JSON. A text may have tokens among other words; opening it puts each value in its token's place.

Input may hold no token: otherwise a producer could send a token that was copied from a dump, and read its value.
`defused` breaks tokens in input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from .errors import QueueOpsError
from .secret_key import development_payload_key

MARK = "queueops!sealed!"
STORED = "queueops!stored!"  # begins a reference to a value that is stored elsewhere, see jobs/features/results
MARKS = "queueops!s"  # how both marks begin
TOKEN = re.compile(MARK + r"([A-Za-z0-9_-]{1,40})!([A-Za-z0-9_=-]+)")
_WHOLE_IN_JSON = rf'(?<!\\)"{TOKEN.pattern}"'
IN_JSON = re.compile(f"{_WHOLE_IN_JSON}|{TOKEN.pattern}")
DEVELOPMENT = "development"  # the name of development's own key
WITHHELD = "its text is left out, as the project's payloads are encrypted"  # stored where no code would open a token
STANDS_IN = "(encrypted; "  # the beginning of the text that is shown instead of a value

Opening = Callable[[], bool]


class PayloadKeysMissing(QueueOpsError):
    """The project's payloads are to be encrypted, and no QUEUEOPS_PAYLOAD_KEYS are set here."""

    code = "payload_keys_missing"
    status = 503


class SealedAway(QueueOpsError):
    """A value is encrypted with a key that is not among this process's QUEUEOPS_PAYLOAD_KEYS."""

    code = "payload_key_missing"
    status = 503
    detail_fields = ("key",)

    def __init__(self, key: str) -> None:
        super().__init__(f"It is encrypted with the key {key}, which is not among QUEUEOPS_PAYLOAD_KEYS.", key=key)
        self.key = key


def _always() -> bool:
    return True


_may_open: ContextVar[Opening | None] = ContextVar("may_open", default=_always)


@contextmanager
def opened_if(allowed: Opening) -> Iterator[None]:
    """In the block, models open a text's sealed values only if `allowed`, called for each such text, returns True."""
    token = _may_open.set(allowed)
    try:
        yield
    finally:
        _may_open.reset(token)


@contextmanager
def left_sealed() -> Iterator[None]:
    """In the block, models keep tokens as they are stored, for code that copies them elsewhere."""
    token = _may_open.set(None)
    try:
        yield
    finally:
        _may_open.reset(token)


def payload_keys() -> dict[str, str]:
    """Return the keys by name, the newest first: the newest encrypts, and each of them decrypts."""
    config = settings.QUEUEOPS
    if config.payload_keys:
        return dict(config.payload_keys)
    if config.debug:
        return {DEVELOPMENT: development_payload_key(config.data_dir)}
    return {}


def newest_key() -> str:
    """
    Raises:
        PayloadKeysMissing
    """
    for name in payload_keys():
        return name
    raise PayloadKeysMissing


def is_sealed(text: str) -> bool:
    """Whether there is a token in a text, or in JSON text."""
    return MARK in text


def is_whole_sealed(text: str) -> bool:
    """Whether JSON text is one token; a payload that is not sealed is an object."""
    return text.startswith(f'"{MARK}')


def seal_json(text: str) -> str:
    """
    Seal JSON text; returns JSON text: a string that is a token.

    Raises:
        PayloadKeysMissing
    """
    name = newest_key()
    return f'"{MARK}{name}!{_cipher(payload_keys()[name]).encrypt(text.encode()).decode()}"'


def seal_value(value: Any) -> str:
    """
    Seal a value that JSON can hold; returns the token.

    Raises:
        PayloadKeysMissing
    """
    return seal_json(json.dumps(value))[1:-1]


def seal_bytes(content: bytes) -> bytes:
    """
    Raises:
        PayloadKeysMissing
    """
    name = newest_key()
    return f"{MARK}{name}!".encode() + _cipher(payload_keys()[name]).encrypt(content)


def open_bytes(content: bytes) -> bytes:
    """
    Return the content that `seal_bytes` was given; other content is returned as it is.

    Raises:
        SealedAway
    """
    if not content.startswith(MARK.encode()):
        return content
    found = TOKEN.fullmatch(content.decode())
    if found is None:
        raise SealedAway("?")
    return _decrypted(found[1], found[2])


def shown_bytes(content: bytes) -> bytes:
    """Open the bytes of a JSON document as `open_bytes` does, for the reader of this context; see `shown_json`."""
    if not content.startswith(MARK.encode()) or (show := _showing()) is None:
        return content
    found = TOKEN.fullmatch(content.decode())
    return content if found is None else show(found[1], found[2]).encode()


def seal_text(text: str) -> str:
    """Seal a text as `seal_value` does; an empty text stays empty."""
    return seal_value(text) if text else text


def open_json(text: str) -> str:
    """
    Return JSON text with each token replaced by its value.

    Raises:
        SealedAway
    """
    return _in_json(text, _opened) if MARK in text else text


def open_text(text: str) -> str:
    """
    Return a text with its sealed values opened.

    Raises:
        SealedAway
    """
    return _in_text(text, _opened) if MARK in text else text


def shown_json(text: str) -> str:
    """
    Open JSON as `open_json` does, for the reader of this context. A text stands in for a value that the reader may not
    see or whose key is missing.
    """
    if MARK not in text or (show := _showing()) is None:
        return text
    return _in_json(text, show)


def shown_text(text: str) -> str:
    """Open a text as `shown_json` opens JSON."""
    if MARK not in text or (show := _showing()) is None:
        return text
    return _in_text(text, show)


def defused(text: str) -> str:
    """Return a text from outside with its marks broken, so that it cannot pass for a token or a stored reference."""
    if MARKS not in text:
        return text
    return text.replace(MARK, MARK.replace("!", " ")).replace(STORED, STORED.replace("!", " "))


def defused_value(value: Any) -> Any:
    """Break marks as `defused` does, in a value that JSON can hold."""
    text = json.dumps(value)
    return json.loads(defused(text)) if MARKS in text else value


def keys_in(text: str) -> set[str]:
    """Return the names of the keys that a text's tokens need."""
    return {found[1] for found in TOKEN.finditer(text)}


def reseal(text: str) -> str:
    """
    Seal a text's (or JSON text's) sealed values anew with the newest key. Values under that key stay as they are.

    Raises:
        SealedAway, PayloadKeysMissing
    """
    newest = newest_key()
    return TOKEN.sub(
        lambda found: found[0] if found[1] == newest else seal_json(_opened(found[1], found[2]))[1:-1], text
    )


def _showing() -> Callable[[str, str], str] | None:
    allowed = _may_open.get()
    if allowed is None:
        return None
    return _shown if allowed() else _hidden


def _opened(name: str, token: str) -> str:
    return _decrypted(name, token).decode()


def _decrypted(name: str, token: str) -> bytes:
    key = payload_keys().get(name)
    if key is None:
        raise SealedAway(name)
    try:
        return _cipher(key).decrypt(token)
    except InvalidToken:  # the settings hold another key of the same name
        raise SealedAway(name) from None


def _shown(name: str, token: str) -> str:
    try:
        return _opened(name, token)
    except SealedAway:
        return json.dumps(f"{STANDS_IN}the key {name} is not set here)")


def _hidden(name: str, token: str) -> str:
    return json.dumps(f"{STANDS_IN}you may not read it)")


def _in_json(text: str, opening: Callable[[str, str], str]) -> str:
    def put(found: re.Match[str]) -> str:
        if found[1] is not None:
            return opening(found[1], found[2])
        return json.dumps(_as_text(opening(found[3], found[4])))[1:-1]  # amid other words of a JSON string

    return IN_JSON.sub(put, text)


def _in_text(text: str, opening: Callable[[str, str], str]) -> str:
    return TOKEN.sub(lambda found: _as_text(opening(found[1], found[2])), text)


def _as_text(inside: str) -> str:
    value = json.loads(inside)
    return value if isinstance(value, str) else inside


@lru_cache(maxsize=16)
def _cipher(key: str) -> Fernet:
    return Fernet(key)
