"""Links to batches by the names that people gave them."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.utils.safestring import SafeString

from jobs.models import Batch
from queueops.screens import formatting


def batch_links(ids: Iterable[UUID | None]) -> dict[UUID, SafeString]:
    """Return a link for each id, also for a batch that is gone; one without a name has its short id."""
    wanted_ids = list(dict.fromkeys(one for one in ids if one is not None))
    names = dict(Batch.objects.filter(pk__in=wanted_ids).values_list("pk", "name")) if wanted_ids else {}
    return {one: formatting.link("jobs_batch", one, names.get(one)) for one in wanted_ids}


def batch_link(batch_id: UUID) -> SafeString:
    return batch_links([batch_id])[batch_id]
