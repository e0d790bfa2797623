"""The audit trail. It lies below all apps, so that each of them can write to it."""
