"""Recovery: after a restore, jobs are compared with what providers did, and rows with the log."""

from jobs.feature import Feature

RECOVERY = Feature(
    package="jobs.features.recovery",
    page="how-to/reconcile.md",
)
