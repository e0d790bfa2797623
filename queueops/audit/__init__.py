"""The audit trail: below all apps, so that each writes to it."""
