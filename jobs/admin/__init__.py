"""The queue's screens, a module or a folder each; importing them registers them."""

from . import (
    executors,
    housekeeping,
    objectives,
    operations,
    pauses,
    pools,
    projects,
    provider_batches,
    ramp,
    rules,
    schedules,
    uploads,
    webhooks,
    windows,
)
from .batches import screen as batches
from .dead_letters import screen as dead_letters
from .jobs import screen as jobs

__all__ = [
    "batches",
    "dead_letters",
    "executors",
    "housekeeping",
    "jobs",
    "objectives",
    "operations",
    "pauses",
    "pools",
    "projects",
    "provider_batches",
    "ramp",
    "rules",
    "schedules",
    "uploads",
    "webhooks",
    "windows",
]
