"""The base of the bodies and parameters that addresses take."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Input(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def as_changes(schema: dict[str, Any]) -> None:
    """Drop the defaults: a field that is left out stays as it is, and does not get a default."""
    for described in schema["properties"].values():
        described.pop("default", None)
