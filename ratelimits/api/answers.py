"""The answers of the limiter's addresses, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from pydantic import BaseModel


class Removed(BaseModel):
    removed: bool
