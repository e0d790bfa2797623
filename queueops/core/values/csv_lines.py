"""Lines of CSV files that spreadsheets open."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

# The last four are wide signs, which a Japanese spreadsheet reads as the first four (OWASP, CSV injection).
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_line(cells: Iterable[Any]) -> str:
    """Return a CSV line. An apostrophe before a text keeps a spreadsheet from taking it for a formula."""
    buffer = io.StringIO()
    csv.writer(buffer).writerow([_safe(cell) for cell in cells])
    return buffer.getvalue()


def _safe(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell
