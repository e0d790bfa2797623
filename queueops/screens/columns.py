"""Columns of lists and read-only fields of pages, each told by its heading and by what it shows of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin

from . import formatting


def column(heading: str, shown: Callable[[Any], Any], *, ordering: str | None = None) -> Any:
    """
    Return a column of an admin.

    Args:
        shown: Returns what the column shows of a row.
        ordering: The field by which the column sorts the list; None: it does not.
    """

    def show(_: Any, row: Any) -> Any:
        return shown(row)

    return admin.display(description=heading, ordering=ordering)(show)


def time_column(heading: str, field: str, *, ordering: str | None = None) -> Any:
    """Return a column that shows a time of a row as `5 min ago`."""
    return column(heading, lambda row: formatting.ago(getattr(row, field)), ordering=ordering)
