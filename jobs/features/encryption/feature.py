"""Encryption: payloads and results that lie in the database before a project turns it on, or its key changes."""

from jobs.feature import Feature

ENCRYPTION = Feature(
    package="jobs.features.encryption",
    page="how-to/encrypt-payloads.md",
)
