"""The admin screens of the queue, a module or a folder each, and of its features; importing a screen registers it."""

from jobs.features import FEATURES

from . import executors, housekeeping, operations, pauses, projects, ramp, rules
from .batches import screen as batches
from .dead_letters import screen as dead_letters
from .jobs import screen as jobs

__all__ = [
    "batches",
    "dead_letters",
    "executors",
    "housekeeping",
    "jobs",
    "operations",
    "pauses",
    "projects",
    "ramp",
    "rules",
]

for _feature in FEATURES:
    if _feature.screens:
        _feature.module(_feature.screens)
