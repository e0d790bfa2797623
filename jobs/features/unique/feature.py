"""Unique keys: of the waiting jobs of one key there is one."""

from jobs.feature import Feature

UNIQUE = Feature(
    package="jobs.features.unique",
    page="how-to/unique-keys.md",
)
