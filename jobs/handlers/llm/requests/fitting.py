"""Reads the object of an answer that must fit a schema. If it does not fit, the call is paid for all the same."""

from __future__ import annotations

from typing import Any

from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.dialect import Dialect, Generation

from .payload import LlmGenerate
from .schemas import Unfit, read_fitting

SCHEMA_MISMATCH, ANSWER_CUT = "schema_mismatch", "answer_cut"
_CUT = frozenset({"length", "max_tokens"})


def with_data(payload: LlmGenerate, result: dict[str, Any], dialect: Dialect, answer: Generation) -> dict[str, Any]:
    """
    Return the result with `data`, where the payload has a schema.

    Raises:
        ProviderError: The answer does not fit, and may be asked for again; or it was cut at its most tokens, and may
            not be.
    """
    if payload.answer_schema is None or answer.calls:
        return result
    try:
        return {**result, "data": read_fitting(result["text"], payload.answer_schema)}
    except Unfit as error:
        is_cut = (answer.finish_reason or "").lower() in _CUT
        why = "its most output tokens cut the answer" if is_cut else f"the answer does not fit its schema: {error}"
        raise ProviderError(
            None,
            f"{payload.service_name}: {why}",
            code=ANSWER_CUT if is_cut else SCHEMA_MISMATCH,
            outcome="answered",
            repeat=not is_cut,
            used=(dialect.cost(answer), answer.used()),
        ) from None
