"""The last step of a document in parts: what becomes of the parts' answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from .payload import LlmGenerate

JOINT = "\n\n"
MAX_TEMPLATE_CHARACTERS = 10_000
PART_FOR_MODEL = "Part {number} of {count}:\n{text}"
# An output token of a part counts as so many input tokens of the combining call, whose tokenizer may need a few more.
TOKENS_FOR_A_TOKEN = 2

_FIELD = re.compile(r"\{(text|number|count)\}")
# Cached properties, dropped from a copy: otherwise it would keep the values of the whole document.
_DERIVED = ("parts", "beside")


class Combine(BaseModel):
    """How the answers to the parts of a document become one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    template: Annotated[str, Field(min_length=1, max_length=MAX_TEMPLATE_CHARACTERS)] | None = Field(
        default=None,
        description="The form of each answer: {text} is the answer, {number} of {count} the part. An empty line stands "
        "between them.",
    )
    system: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The instruction of one more call, whose prompt are the answers in their form; its answer is the "
        "result's. Needs max_output_tokens.",
    )

    @model_validator(mode="after")
    def _says_how(self) -> Self:
        if self.template is None and self.system is None:
            raise ValueError("give template, system or both")
        if self.template is not None and "{text}" not in self.template:
            raise ValueError("template needs {text}, the place of an answer")
        return self

    def joined(self, answers: Sequence[str]) -> str:
        """Return the answers as one text, each in the template's form."""
        form = self.template or PART_FOR_MODEL
        told = []
        for number, text in enumerate(answers, start=1):
            values = {"text": text, "number": str(number), "count": str(len(answers))}
            told.append(_FIELD.sub(lambda found: values[found[1]], form))  # noqa: B023 - it is called at once
        return JOINT.join(told)


def calls_of(payload: LlmGenerate) -> int:
    """How many calls a payload takes."""
    return len(payload.parts) + has_combining_call(payload)


def has_combining_call(payload: LlmGenerate) -> bool:
    return payload.combine is not None and payload.combine.system is not None


def for_part(payload: LlmGenerate) -> LlmGenerate:
    """Return the payload for the calls of its parts: without the schema, if only the combined answer must fit it."""
    if not has_combining_call(payload) or payload.answer_schema is None:
        return payload
    return _changed(payload, {"answer_schema": None, "combine": None}, derived=payload.parts)


def combining(payload: LlmGenerate, answers: Sequence[str]) -> LlmGenerate:
    """Return the payload of the call that combines the parts' answers; only for a payload with such a call."""
    if (combine := payload.combine) is None:
        raise ValueError("its answers are joined without a call")
    text = combine.joined(answers)
    changes = {"prompt": text, "system": combine.system, "split": False, "combine": None, "pictures": None}
    return _changed(payload, {**changes, "cache_system": False}, derived=(text,))


def combining_input(payload: LlmGenerate) -> tuple[LlmGenerate, int]:
    """
    Return the combining call without the answers, and the most tokens that the answers add to its input.

    The answers are not known beforehand, but their number is known, and the most tokens of each.
    """
    count = len(payload.parts)
    return combining(payload, [""] * count), count * (payload.max_output_tokens or 0)


def _changed(payload: LlmGenerate, changes: dict[str, object], *, derived: tuple[str | None, ...]) -> LlmGenerate:
    made = payload.model_copy(update=changes)
    for name in _DERIVED:
        vars(made).pop(name, None)
    vars(made)["parts"] = derived
    return made
