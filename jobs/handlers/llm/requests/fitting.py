"""Reads the object of an answer that must fit a schema. If it does not fit, the call is paid for all the same."""

from __future__ import annotations

from typing import Any

from jobs.handlers.errors import ANSWER_BLOCKED, SCHEMA_MISMATCH, ProviderError
from jobs.handlers.http.answers import one_line
from jobs.handlers.llm.dialect import Dialect, Generation

from .payload import LlmGenerate
from .schemas import Unfit, read_fitting

ANSWER_CUT = "answer_cut"


def with_data(payload: LlmGenerate, result: dict[str, Any], dialect: Dialect, answer: Generation) -> dict[str, Any]:
    """
    Return the result with `data`, where the payload has a schema.

    Raises:
        ProviderError: The answer does not fit, and another try may help. Or it was cut at its most tokens, or was
            blocked, and no other try helps.
    """
    if payload.answer_schema is None or answer.calls:
        return result
    try:
        return {**result, "data": read_fitting(result["text"], payload.answer_schema)}
    except Unfit as error:
        code, why = _fault(error, answer)
        raise ProviderError(
            None,
            f"{payload.service_name}: {why}",
            code=code,
            outcome="answered",
            repeat=code == SCHEMA_MISMATCH,
            used=(dialect.cost(answer), answer.used()),
        ) from None


def _fault(error: Unfit, answer: Generation) -> tuple[str, str]:
    """Return the code of an answer that does not fit, and what is wrong with it."""
    only_thoughts = answer.thought and not answer.text.strip()
    if answer.is_cut:
        return ANSWER_CUT, answer.hint if only_thoughts else "its most output tokens cut the answer"
    if answer.is_blocked:
        said = one_line(answer.text) or f"it ended with {answer.finish_reason}"
        return ANSWER_BLOCKED, f"the model or its provider refused to answer: {said}"
    if only_thoughts:
        return SCHEMA_MISMATCH, answer.hint
    return SCHEMA_MISMATCH, f"the answer does not fit its schema: {error}"
