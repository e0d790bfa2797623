"""Watches: find trouble that operators must know of, and open alerts about it."""

from jobs.feature import Feature

WATCHES = Feature(
    package="jobs.features.watches",
    page="how-to/alerts.md",
)
