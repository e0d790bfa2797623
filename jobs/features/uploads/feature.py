"""Uploads: a file of jobs that is checked, shown, and submitted once somebody says yes."""

from jobs.feature import Feature, SealedColumns, Tab
from queueops.core.moved_rows import Sort

UPLOADS = Feature(
    package="jobs.features.uploads",
    page="how-to/upload-jobs.md",
    screens="admin",
    tabs=(Tab("Uploads", "jobs_upload", after="Uploads"),),
    viewer=("view_upload",),
    operator=("add_upload",),
    moves=(Sort("uploads", "jobs_upload", names_jobs=True),),
    sealed=(SealedColumns("jobs_upload", whole=("errors", "sample"), contents=("content",)),),
    of_user=("of_user.rows_of_user",),
)
