"""The answers of the API about objectives."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

OBJECTIVES = {
    "objectives": [
        {
            "id": 4,
            "name": "imports start soon",
            "aim": "start",
            "percent": 95.0,
            "within_seconds": 300,
            "kind": "google_sheets.batch_update",
            "service": "",
            "window_days": 28,
            "note": "",
            "words": "95 % start within 5 min: jobs of kind google_sheets.batch_update of demo",
            "jobs": 12_480,
            "missed": 312,
            "attained_percent": 97.5,
            "budget_left_percent": 50.0,
            "burn": [{"window": "1 h", "jobs": 40, "missed": 1, "rate": 0.5}],
        }
    ],
    "next_cursor": None,
    "next": None,
}


class Burn(BaseModel):
    window: str = Field(description="Such as `1 h`.")
    jobs: int = Field(description="Whose deadlines passed in it.")
    missed: int
    rate: float = Field(description="How many times as fast as it may the budget is used up.")


class ObjectiveInfo(BaseModel):
    """An objective as it stands now."""

    id: int
    name: str
    aim: Literal["start", "end", "succeed"]
    percent: float
    within_seconds: int | None
    kind: str = Field(description="Empty: jobs of every kind.")
    service: str
    window_days: int
    note: str
    words: str
    jobs: int = Field(description="Whose deadlines passed in the window.")
    missed: int
    attained_percent: float | None = Field(description="Null: there were no jobs.")
    budget_left_percent: float | None = Field(description="Of the misses it allows; below 0: it is broken.")
    burn: list[Burn]


class Objectives(BaseModel):
    objectives: list[ObjectiveInfo]
    next_cursor: str | None = Field(description="Null on the last page.")
    next: str | None
