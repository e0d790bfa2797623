"""Uploads of an end user, for the erasure of the user."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from uuid import UUID

from jobs.models import Batch, Upload
from jobs.services.upkeep.user_rows import UserRows
from queueops.core.sealing import open_bytes


def rows_of_user(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    """Uploads whose file, sample or errors have the user; files are read one after the other."""
    text, found = str(user_id), []
    for upload in Upload.objects.filter(project_id=project_id).iterator(chunk_size=1):
        shown = f"{upload.sample}{upload.errors}"
        content = zlib.decompress(open_bytes(bytes(upload.content))) if upload.content else b""
        if text in shown or text.encode() in content:
            found.append(upload.pk)
    batches = Batch.objects.filter(project_id=project_id, user_id=user_id)
    of_batches = Upload.objects.filter(batch_id__in=batches.values("pk")).values_list("pk", flat=True)
    yield UserRows("uploads", Upload.objects.filter(pk__in=[*found, *of_batches]))
