"""Encryption of payloads and results that were stored before their project turned it on, or before its key changed."""

from jobs.feature import Feature

ENCRYPTION = Feature(
    package="jobs.features.encryption",
    page="how-to/encrypt-payloads.md",
)
