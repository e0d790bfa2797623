"""The archive: ended work leaves the database for files, one a day, and comes back from them."""

from jobs.feature import Feature

ARCHIVE = Feature(
    package="jobs.features.archive",
    page="how-to/archive.md",
    retention=("retention.RESTORED_JOBS",),
    stays={"jobs_restoredjob": "a project that has any is refused"},
)
