"""Turns a handler's result into the JSON text that is kept with its job."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import pydantic_core
from django.conf import settings

from jobs.classify import clean_json
from jobs.handlers.errors import ProviderError

TOO_LARGE = "result_too_large"
MAX_RESULT_DIGITS = sys.int_info.default_max_str_digits
_TOO_LONG = 10**MAX_RESULT_DIGITS
_HOLD_NO_NUMBER = frozenset({float, str, bool, type(None)})  # lists of them, such as vectors, need no closer look


class ResultTooLarge(ProviderError):
    """The result is larger than the result store takes. The call was made, and repeating it would not help."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            None, f"The result has {size:,} bytes; at most {most:,} are kept.", code=TOO_LARGE, outcome="answered"
        )


class PartialTooLarge(ProviderError):
    """The part that a handler keeps for its next call does not fit into the job's row."""

    def __init__(self, size: int, most: int) -> None:
        message = f"What is kept for the next call has {size:,} bytes; at most {most:,} are kept."
        super().__init__(None, message, code="partial_lost", outcome="answered")


def result_text(result: Any) -> str | None:
    """
    Return a result as JSON text. Without a result store, a note replaces a result that is too large, as the call
    succeeded.

    Raises:
        ResultTooLarge: A result store is set up, and the result is too large for it.
    """
    if result is None:
        return None
    text, limit = _json(result), settings.QUEUEOPS.max_result_bytes
    if len(text) > limit and settings.QUEUEOPS.result_store:
        raise ResultTooLarge(len(text), limit)
    if len(text) > limit:
        return json.dumps({"omitted": f"the result has {len(text)} bytes; at most {limit} are kept"})
    return clean_json(text.decode())


def partial_text(partial: Any) -> str:
    """
    Return the result so far, for the job's next run, as JSON text.

    Raises:
        PartialTooLarge: It does not fit into the job's row.
    """
    text, limit = _json(partial), settings.QUEUEOPS.max_payload_bytes
    if len(text) > limit:
        raise PartialTooLarge(len(text), limit)
    return clean_json(text.decode())


def _json(value: Any) -> bytes:
    try:
        plain = pydantic_core.to_jsonable_python(value)
        # Writing a whole number takes time quadratic in its digits: a million of them would stop the event loop.
        if _has_too_long(plain):
            told = f"a whole number has more than {MAX_RESULT_DIGITS:,} digits, and no reader of the result takes it"
            raise pydantic_core.PydanticSerializationError(told)
        return pydantic_core.to_json(plain, inf_nan_mode="null")
    except ValueError as error:
        # Half of a surrogate pair has no UTF-8, but an escape in JSON, and must not cost the call's result.
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            text = json.dumps(value, default=pydantic_core.to_jsonable_python)
            return json.dumps(json.loads(text, parse_constant=lambda _: None), separators=(",", ":")).encode()
        raise pydantic_core.PydanticSerializationError(str(error)) from None


def _has_too_long(plain: Any) -> bool:
    """Whether a JSON value has a whole number with more than MAX_RESULT_DIGITS digits."""
    waiting = [plain]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int) and not -_TOO_LONG < value < _TOO_LONG:
            return True
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list) and not _HOLD_NO_NUMBER.issuperset(map(type, value)):
            waiting += value
    return False
