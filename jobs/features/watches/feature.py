"""Watches: looks for trouble that operators must hear of, and tells of it."""

from jobs.feature import Feature

WATCHES = Feature(
    package="jobs.features.watches",
    page="how-to/alerts.md",
)
