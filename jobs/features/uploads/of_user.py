"""Uploads of an end user, for the erasure of the user."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from uuid import UUID

from jobs.models import Batch, Upload
from jobs.services.upkeep.user_rows import UserRows, naming_opened
from queueops.core.sealing import open_bytes


def rows_of_user(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    """
    Uploads whose file, sample or errors have the user; files are read one after the other.

    Raises:
        SealedAway
    """
    text, own = str(user_id), Upload.objects.filter(project_id=project_id)
    contents = own.exclude(content=None).values_list("pk", "content").iterator(chunk_size=1)
    found = [pk for pk, content in contents if text.encode() in zlib.decompress(open_bytes(bytes(content or b"")))]
    batches = Batch.objects.filter(project_id=project_id, user_id=user_id)
    named = own.filter(pk__in=found) | Upload.objects.filter(batch_id__in=batches.values("pk"))
    # Read as usual, a value whose key is missing would be another text, and seem not to have the user.
    yield UserRows("uploads", named | naming_opened(own, "sample", text) | naming_opened(own, "errors", text))
