"""All that its record names. Each part notes that it was done."""

from __future__ import annotations

from django.views import View

from jobs.services.upkeep.retention import RetentionRule

done: list[str] = []


class PlantedList(View):
    pass


def tend_planted() -> None:
    done.append("duty")


class PlantedDuty:
    def do(self) -> None:
        done.append("duty of its own")


class PlantedRounds:
    def __init__(self, executor: object, log: object) -> None:
        done.append("rounds are made")

    def do(self, now: float) -> None:
        done.append("round")

    def stop(self) -> None:
        done.append("rounds are over")


def watch_planted() -> None:
    done.append("watch")


PLANTED_ROWS = RetentionRule("planted rows", None, lambda before, most: 0, lambda before: None)
