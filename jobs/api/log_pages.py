"""Pages of the log of events."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from jobs.errors import OtherEpoch
from jobs.services.operate.epochs import current_epoch
from queueops.rest.pagination import NewestFirst


class LogPages(NewestFirst):
    """Pages whose cursors name an epoch, because a restored database gives ids of events again."""

    def encode(self, last: object) -> str:
        return f"{current_epoch()}.{super().encode(last)}"

    def decode(self, cursor: str, queryset: QuerySet[Any]) -> Any:
        """
        Raises:
            InvalidQuery: The text is no cursor of this list.
            OtherEpoch
        """
        epoch, _, place = cursor.rpartition(".")
        after = super().decode(place, queryset)
        if epoch and epoch != current_epoch():
            raise OtherEpoch("The database was restored since: begin again, without a cursor.")
        return after
