"""The base of filters that arrive as JSON: an empty value is refused, because it would match every row."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from queueops.core.web.requests.nul import NO_NUL

SearchedText = Annotated[str, StringConstraints(min_length=1, pattern=NO_NUL)]


def _without_null(schema: dict[str, Any]) -> None:
    """Forbid null for fields that may be left out."""
    for described in schema["properties"].values():
        del described["default"]
        [wanted] = [choice for choice in described.pop("anyOf") if choice != {"type": "null"}]
        described.update(wanted)


def not_null(given: Any) -> Any:
    """
    Raises:
        ValueError: The value is null.
    """
    if given is None:
        raise PydanticCustomError("narrows_nothing", "Null narrows nothing: leave it out, or say what to look for")
    return given


class Narrowing(BaseModel):
    """Selects the rows that fit every given field. None means that a field was left out; a given null is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_without_null)

    @field_validator("*", mode="before")
    @classmethod
    def narrows(cls, given: Any) -> Any:
        return not_null(given)
