"""Making a provider's answer fit to be stored: JSON-able, free of the secrets that were sent."""

import codecs
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from queueops.core.outbound.client import OutboundResponse
from queueops.core.values.masking import is_secret_header

MAX_JSON_DEPTH = 100
MASK = "[masked]"

# Each secret is looked for in every text of an answer, and an answer may have a million texts.
MAX_SECRETS = 64
EXCERPT_CHARACTERS = 500

# Shorter values would mask ordinary words.
_MIN_SECRET_LENGTH = 6
# An excerpt is made of the first _EXCERPT_BYTES of a body. A body longer than _ERROR_BYTES is not parsed for an error.
_EXCERPT_BYTES = 20_000
_ERROR_BYTES = 1_000_000
# PostgreSQL's jsonb takes neither NUL nor lone surrogates.
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")
# A provider must not choose these codecs: they decode escapes, not a charset, and are slow on long input.
_NOT_A_CHARSET = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"})


def secrets_in(headers: Mapping[str, str], texts: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the secret parts of request headers, and other secret texts, longest first, for `storable`."""
    found: set[str] = set(texts)
    for name, value in headers.items():
        if is_secret_header(name):
            found |= {value.strip(), value.strip().rpartition(" ")[2]}
            found |= {pair.partition("=")[2].strip() for pair in value.split(";")}
    return tuple(sorted((text for text in found if len(text) >= _MIN_SECRET_LENGTH), key=len, reverse=True))


def storable(value: Any, secrets: Iterable[str]) -> Any:
    """
    Return a JSON value with secrets masked and characters replaced that jsonb refuses.

    Raises:
        ValueError: Nested deeper than MAX_JSON_DEPTH.
    """
    return _storable(value, tuple(secrets), depth=0)


def _storable(value: Any, secrets: tuple[str, ...], *, depth: int) -> Any:
    if depth > MAX_JSON_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        for secret in secrets if len(value) >= _MIN_SECRET_LENGTH else ():
            value = value.replace(secret, MASK)
        return _NOT_STORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_storable(item, secrets, depth=depth + 1) for item in value]
    if isinstance(value, dict):
        return {
            _storable(key, secrets, depth=depth + 1): _storable(item, secrets, depth=depth + 1)
            for key, item in value.items()
        }
    return value


def text_of(body: bytes, charset: str | None, secrets: tuple[str, ...], *, is_truncated: bool) -> str:
    """Return a body as storable text; undecodable bytes become U+FFFD."""
    text = _decoded(body, charset)
    if is_truncated and secrets:
        text = text[: -len(secrets[0])]  # the cut may have gone through a secret
    return str(storable(text, secrets))


def excerpt_of(response: OutboundResponse, secrets: tuple[str, ...]) -> str:
    """Return the beginning of a body in one line; the rest of a long body is not decoded."""
    beginning = response.body[:_EXCERPT_BYTES]
    is_cut = response.is_truncated or len(response.body) > len(beginning)
    return one_line(text_of(beginning, response.charset, secrets, is_truncated=is_cut))


def one_line(text: str) -> str:
    """Return at most EXCERPT_CHARACTERS of a text, with a single space in place of other white space."""
    return " ".join(text[:_EXCERPT_BYTES].split())[:EXCERPT_CHARACTERS]


def error_document(response: OutboundResponse) -> Any:
    """Parse the JSON of a refusal; None: the body is no JSON, or longer than any error needs."""
    if len(response.body) > _ERROR_BYTES:
        return None
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def json_of(body: bytes, secrets: tuple[str, ...]) -> Any:
    """
    Parse a JSON body into a storable value.

    Raises:
        ValueError: No JSON, or JSON that jsonb could not hold (NaN, infinite, too deep).
    """
    try:
        return storable(json.loads(body, parse_constant=_refuse, parse_float=_finite), secrets)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _decoded(body: bytes, charset: str | None) -> str:
    try:
        codec = codecs.lookup(charset or "utf-8").name
        if codec not in _NOT_A_CHARSET:
            return body.decode(codec, errors="replace")
    except (LookupError, ValueError):
        pass
    return body.decode(errors="replace")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number
