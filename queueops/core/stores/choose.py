"""Chooses the store that a setting or an option names."""

from __future__ import annotations

from pathlib import Path

from .directory import DirectoryStore
from .s3 import S3Store
from .store import Store, StoreError

BUCKET = "s3://"


def store_at(place: str) -> Store:
    """
    Return the store at a path, or at `s3://bucket/prefix`.

    Raises:
        StoreError: No bucket is named, or the extra for buckets is not installed.
    """
    if not place.startswith(BUCKET):
        return DirectoryStore(Path(place).expanduser().absolute())
    bucket, _, prefix = place.removeprefix(BUCKET).partition("/")
    if not bucket:
        raise StoreError(f"{place} names no bucket. Write s3://bucket/prefix.")
    return S3Store(bucket, prefix.strip("/"))
