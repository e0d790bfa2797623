"""Unique keys: only one job with the same key waits at a time."""

from jobs.feature import Feature

UNIQUE = Feature(
    package="jobs.features.unique",
    page="how-to/unique-keys.md",
)
