"""The flow: what came, went and waited, summed up from the log for charts."""

from jobs.feature import Feature

FLOW = Feature(
    package="jobs.features.flow",
    page="how-to/read-the-dashboard.md",
)
