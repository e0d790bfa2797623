"""Erasure: everything that names a user goes, with a proof of it."""

from jobs.feature import Feature

ERASURE = Feature(
    package="jobs.features.erasure",
    page="how-to/erase-a-user.md",
)
