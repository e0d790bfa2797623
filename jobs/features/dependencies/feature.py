"""Dependencies: jobs and batches that wait for others."""

from jobs.feature import Feature

DEPENDENCIES = Feature(
    package="jobs.features.dependencies",
    page="how-to/after.md",
)
