"""The queue's screens, one module each; importing them registers them."""

from . import (
    batches,
    dead_letters,
    executors,
    housekeeping,
    jobs,
    operations,
    pauses,
    projects,
    rules,
    uploads,
    webhooks,
)

__all__ = [
    "batches",
    "dead_letters",
    "executors",
    "housekeeping",
    "jobs",
    "operations",
    "pauses",
    "projects",
    "rules",
    "uploads",
    "webhooks",
]
