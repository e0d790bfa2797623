"""Saved filters: a list's address under a name."""

from jobs.feature import Feature

SAVED_FILTERS = Feature(
    package="jobs.features.saved_filters",
    page="how-to/admin.md",
    operator=("share_savedfilter",),
    of_user=("saved_filters.rows_of_user",),
)
