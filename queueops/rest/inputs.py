"""The base of what an address takes."""

from pydantic import BaseModel, ConfigDict


class Input(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
