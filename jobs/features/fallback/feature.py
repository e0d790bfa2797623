"""Fallback: a job goes to another model or service than the one that it was submitted for."""

from jobs.feature import Feature

FALLBACK = Feature(
    package="jobs.features.fallback",
    page="how-to/fallback.md",
    rounds=("fallback.FallbackRounds",),
)
