"""Lines of CSV files that spreadsheets open."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_line(cells: Iterable[Any]) -> str:
    """One CSV line. Text that a spreadsheet would take for a formula gets an apostrophe before it."""
    buffer = io.StringIO()
    csv.writer(buffer).writerow([_safe(cell) for cell in cells])
    return buffer.getvalue()


def _safe(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell
