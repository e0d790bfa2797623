"""How long batches at providers are kept."""

from __future__ import annotations

from datetime import datetime

from jobs.models import ProviderBatch, ProviderBatchLine
from jobs.services.upkeep.retention import RetentionRule


def _forget(before: datetime, most: int) -> int:
    """Delete up to `most` lines of the oldest batch, and the batch itself with its last line."""
    batch = ProviderBatch.objects.filter(closed_at__lt=before).order_by("closed_at").first()
    if batch is None:
        return 0
    lines = list(batch.all_lines.order_by("number").values_list("pk", flat=True)[:most])
    ProviderBatchLine.objects.filter(pk__in=lines).delete()
    if len(lines) < most:
        batch.delete()
    return max(len(lines), 1)


def _oldest(before: datetime) -> datetime | None:
    closed = ProviderBatch.objects.filter(closed_at__lt=before).order_by("closed_at")
    return closed.values_list("closed_at", flat=True).first()


CLOSED_BATCHES = RetentionRule("batches of providers", "retention_days", _forget, _oldest)
