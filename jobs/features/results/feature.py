"""The result store: large results are objects beside the database."""

from jobs.feature import Feature

RESULTS = Feature(
    package="jobs.features.results",
    page="how-to/large-results.md",
)
