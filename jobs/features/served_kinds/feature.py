"""Served kinds: jobs that no worker can carry out are held until one can."""

from jobs.feature import Feature

SERVED_KINDS = Feature(
    package="jobs.features.served_kinds",
    page="runbooks/unserved.md",
)
