"""Sizes of sheets, as last read: needed to read a range with open ends in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachetools import TTLCache

from queueops.tenancy.secrets.credentials import OpenCredential

from .ranges import Box, Grid

FIELDS = "sheets.properties(title,gridProperties(rowCount,columnCount))"
GRIDS_KEPT_SECONDS = 300.0
MAX_GRIDS_KEPT = 1_000

Grids = Mapping[str, Grid]
"""By title, in the order of the sheets."""

# One cache in each process, used on its executor's loop alone. The key includes the credential: otherwise jobs that
# may not use a credential could read the titles.
_kept: TTLCache[tuple[str, str, str], Grids] = TTLCache(MAX_GRIDS_KEPT, GRIDS_KEPT_SECONDS)


def find_grids(credential: OpenCredential, spreadsheet_id: str) -> Grids | None:
    """Return the known sizes of a spreadsheet's sheets, at most GRIDS_KEPT_SECONDS old."""
    return _kept.get(_name(credential, spreadsheet_id))


def keep_grids(credential: OpenCredential, spreadsheet_id: str, answer: Mapping[str, Any]) -> Grids:
    """Read and keep the answer of spreadsheets.get with the mask FIELDS."""
    grids: dict[str, Grid] = {}
    sheets = answer.get("sheets")
    for sheet in sheets if isinstance(sheets, list) else ():
        properties = sheet.get("properties") if isinstance(sheet, dict) else None
        size = properties.get("gridProperties") if isinstance(properties, dict) else None
        if isinstance(properties, dict) and isinstance(size, dict):  # a chart's sheet has no grid
            rows, columns = size.get("rowCount"), size.get("columnCount")
            if isinstance(rows, int) and isinstance(columns, int):
                grids[str(properties.get("title", ""))] = Grid(rows, columns)
    _kept[_name(credential, spreadsheet_id)] = grids
    return grids


def forget_grids(credential: OpenCredential, spreadsheet_id: str) -> None:
    """Drop the known sizes, after the service contradicted them."""
    _kept.pop(_name(credential, spreadsheet_id), None)


def grid_of(grids: Grids, box: Box) -> Grid | None:
    """Return the size of a range's sheet; None if no sheet has its title, as for a named range."""
    return grids.get(box.sheet) if box.title else next(iter(grids.values()), None)


def _name(credential: OpenCredential, spreadsheet_id: str) -> tuple[str, str, str]:
    return credential.name, credential.base_url, spreadsheet_id
