"""Sizes in bytes."""

MEGABYTE = 1_000_000
ENVELOPE_BYTES = 100_000  # what surrounds the largest payload in a request: keys, names, form fields
