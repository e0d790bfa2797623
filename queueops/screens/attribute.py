"""Attributes of objects whose class does not declare them."""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")


class TypedAttribute(Generic[Value]):
    """
    A value that a screen keeps on a row or a request, for code that reads it later in the same request.

    A ModelAdmin cannot keep the value, because all requests share the ModelAdmin.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def set(self, owner: object, value: Value) -> None:
        setattr(owner, self.name, value)

    def of(self, owner: object) -> Value:
        value: Value = getattr(owner, self.name)
        return value

    def find(self, owner: object) -> Value | None:
        """Return the value, or None if it is not set."""
        return getattr(owner, self.name, None)
