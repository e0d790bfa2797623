"""Attributes of objects whose class does not declare them."""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class TypedAttribute(Generic[Value]):
    """
    A value that a screen keeps on a row or a request, for whoever reads it later in the same request.

    A ModelAdmin can keep nothing of the kind: all requests share it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def set(self, owner: object, value: Value) -> None:
        setattr(owner, self.name, value)

    def of(self, owner: object) -> Value:
        value: Value = getattr(owner, self.name)
        return value

    def find(self, owner: object) -> Value | None:
        """Return None where nobody has set it."""
        return getattr(owner, self.name, None)
