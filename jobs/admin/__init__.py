"""The admin's screens, one module each; importing them registers them."""

from . import (
    accounts,
    audit_trail,
    batches,
    credentials,
    dead_letters,
    executors,
    housekeeping,
    issuers,
    jobs,
    operations,
    pauses,
    projects,
    rules,
    uploads,
    webhooks,
)

__all__ = [
    "accounts",
    "audit_trail",
    "batches",
    "credentials",
    "dead_letters",
    "executors",
    "housekeeping",
    "issuers",
    "jobs",
    "operations",
    "pauses",
    "projects",
    "rules",
    "uploads",
    "webhooks",
]
