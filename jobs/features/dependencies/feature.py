"""Dependencies: jobs and batches that wait for others."""

from jobs.feature import Feature
from queueops.core.moved_rows import Sort

DEPENDENCIES = Feature(
    package="jobs.features.dependencies",
    page="how-to/after.md",
    duties=("dependants.DependantsDuty",),
    due=("EXISTS (SELECT FROM jobs_dependency)",),
    moves=(Sort("waits for other jobs", "jobs_dependency", names_jobs=True),),
)
