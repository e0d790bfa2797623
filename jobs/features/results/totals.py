"""Figures of the result store, counted by each process that used it and added up in one row."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F

from jobs.models import ResultStoreTotals
from queueops.core.clock import Now

FAILURE_CHARACTERS = 300  # characters of the last failure


@dataclass(slots=True)
class ResultFigures:
    """
    Attributes:
        stored, bytes: Results that went to the store, and their size.
        in_row: Results that were to go to the store and are in the database instead.
        failed: Writes that failed; `failure` is the message of the last one.
        removed: Objects that no row names any more.
    """

    stored: int = 0
    bytes: int = 0
    in_row: int = 0
    failed: int = 0
    removed: int = 0
    failure: str = ""

    def note_stored(self, size: int) -> None:
        self.stored += 1
        self.bytes += size

    def note_in_row(self) -> None:
        self.in_row += 1

    def note_failure(self, why: str) -> None:
        self.failed += 1
        self.failure = why

    def add(self, other: ResultFigures) -> None:
        """Add the figures of an earlier time."""
        self.stored += other.stored
        self.bytes += other.bytes
        self.in_row += other.in_row
        self.failed += other.failed
        self.removed += other.removed
        self.failure = self.failure or other.failure

    @property
    def is_empty(self) -> bool:
        return not (self.stored or self.in_row or self.failed or self.removed)


def add_figures(figures: ResultFigures, *, swept: bool = False) -> None:
    """
    Add figures to the totals.

    Args:
        swept: A sweep has been through the whole store.
    """
    if figures.is_empty and not swept:
        return
    counted = ("stored", "bytes", "in_row", "failed", "removed")
    changes: dict[str, object] = {name: F(name) + getattr(figures, name) for name in counted}
    if figures.failed:
        changes |= {"failure": figures.failure[:FAILURE_CHARACTERS], "failed_at": Now()}
    if swept:
        changes["swept_at"] = Now()
    if not ResultStoreTotals.objects.filter(pk=1).update(**changes):
        ResultStoreTotals.objects.bulk_create([ResultStoreTotals()], ignore_conflicts=True)
        ResultStoreTotals.objects.filter(pk=1).update(**changes)
