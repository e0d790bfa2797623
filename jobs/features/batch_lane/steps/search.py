"""After a restore, finds batches at the provider that were made after the restored moment, and takes them in."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from django.conf import settings
from django.db.models import QuerySet

from jobs.features.batch_lane.models import SEARCHED_BACK
from jobs.handlers.batch_form import (
    CLOCK_IS_WRONG,
    Access,
    BatchApi,
    Remote,
    Send,
    batch_of,
    custom_ids,
    job_of,
    line_of,
)
from jobs.handlers.errors import ProviderError
from jobs.models import BatchSearch, Job, ProviderBatch
from jobs.states import TERMINAL
from queueops.core.clock import Now
from queueops.tenancy.secrets.credentials import UnknownCredential, open_named

from .adopt import Stray, take_in
from .calls import CallLoop
from .collect import Spoken, find_spoken, provider_of

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Search:
    """One look through a provider's list."""

    row: BatchSearch
    calls: CallLoop

    def make(self) -> None:
        """
        Take in the batches found, and close the search once no other batch there can have jobs of ours.

        Raises:
            ProviderError, QueueOpsError: The provider could not be asked.
        """
        row = self.row
        spoken, provider = self._spoken()
        if spoken is None:
            if not provider and not self._jobs().exists():
                self._close("its jobs have ended")
            else:
                look_through_later(row, settings.QUEUEOPS.batch_poll_seconds)
            return
        try:
            credential = open_named(row.credential)
        except UnknownCredential as error:
            self._close(error.message)  # without the credential nobody can make a second batch
            return
        access = spoken.api.access(credential, spoken.form.key_of(row.service, credential))
        waits: list[str] = []
        for remote in self._unknown(spoken.api, access, provider):
            found = self._judge(remote, spoken.api, access, provider)
            if found is None or found is Stray.LATER:
                waits.append(f"{remote.id} {'works, and does not tell its lines yet' if found is None else found}")
            elif found is Stray.TAKEN_IN:
                row.adopted += 1
            elif found is Stray.NOT_OURS:
                row.judged = [*row.judged, remote.id]
        BatchSearch.objects.filter(pk=row.pk).update(
            judged=row.judged, adopted=row.adopted, left_alone=row.left_alone, looked_at=Now(), faults=0
        )
        if waits:
            look_through_later(row, settings.QUEUEOPS.batch_poll_seconds, error="; ".join(waits[:5]))
        else:
            self._close()

    def _jobs(self) -> QuerySet[Job]:
        row, waiting = self.row, Job.objects.filter(via__isnull=False).exclude(status__in=TERMINAL)
        return waiting.filter(kind=row.kind, service=row.service, credential=row.credential)

    def _spoken(self) -> tuple[Spoken | None, str]:
        row = self.row
        rows = ProviderBatch.objects.filter(kind=row.kind, service=row.service, credential=row.credential)
        known = rows.order_by("-id").values_list("provider", flat=True).first()
        provider = known or provider_of(row.kind, self._jobs())
        return find_spoken(row.kind, provider), provider

    def _unknown(self, api: BatchApi, access: Access, provider: str) -> list[Remote]:
        """The provider's batches that have no row here, were not judged yet, and were made before this epoch."""
        row = self.row
        listed = self.calls.run(_listed(api, self.calls.send, access, since=row.made_before - SEARCHED_BACK))
        found = [
            remote
            for remote in listed
            if remote.id not in row.judged
            and (remote.intent is not None or not api.names_batches)
            and (remote.made_at is None or remote.made_at < row.made_before + CLOCK_IS_WRONG)
        ]
        ids, marks = [remote.id for remote in found], [remote.intent for remote in found if remote.intent]
        # A match by the count of lines alone proves nothing: the provider's batch may belong to a row that was lost.
        rows = ProviderBatch.objects.filter(provider=provider, provider_id__in=ids, found_by_count=False)
        mine = set(rows.values_list("provider_id", flat=True))
        looked_for = set(ProviderBatch.objects.filter(pk__in=marks).values_list("pk", flat=True))
        return [remote for remote in found if remote.id not in mine and remote.intent not in looked_for]

    def _judge(self, remote: Remote, api: BatchApi, access: Access, provider: str) -> Stray | None:
        """Take a batch in if it is ours; None: the provider does not show its lines yet."""
        sent = self._names_of_lines(remote, api, access)
        batch_id = batch_of(sent[0]) if sent else None
        if not sent or batch_id is None:
            return None if sent is None else Stray.NOT_OURS
        if ProviderBatch.objects.filter(pk=batch_id).exists():
            return Stray.KNOWN
        jobs = {
            line: job
            for custom_id in sent
            if (line := line_of(custom_id, batch_id)) is not None and (job := job_of(custom_id)) is not None
        }
        found = take_in(batch_id, remote, jobs, kind=self.row.kind, provider=provider)
        if found is Stray.NOT_OURS:
            self.row.left_alone += 1
        logger.warning("provider batch %s (%s): no row was of it; %s", batch_id, remote.id, found)
        return found

    def _names_of_lines(self, remote: Remote, api: BatchApi, access: Access) -> list[str] | None:
        """Call `custom_ids`; empty if the results were deleted: then only the outcome log may have the ids."""
        try:
            return self.calls.run(custom_ids(api, self.calls.send, access, remote))
        except ProviderError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
                raise
            return None if remote.ending is None else []

    def _close(self, error: str = "") -> None:
        BatchSearch.objects.filter(pk=self.row.pk).update(closed_at=Now(), error=error)


async def _listed(api: BatchApi, send: Send, access: Access, *, since: datetime) -> Sequence[Remote]:
    return [remote async for remote in api.listed(send, access, since=since)]


def look_through_later(row: BatchSearch, seconds: float, *, error: str = "") -> None:
    """Look through the list again after so many seconds."""
    BatchSearch.objects.filter(pk=row.pk).update(look_at=Now() + timedelta(seconds=seconds), error=error)
