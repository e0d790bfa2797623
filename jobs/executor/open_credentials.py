"""Decrypts the credentials that an executor's jobs name, and keeps them for a few seconds."""

from __future__ import annotations

from collections.abc import Iterable

from cachetools import TTLCache

from jobs.services.finish.claimed import ClaimedJob
from queueops.core.errors import QueueOpsError
from queueops.tenancy.secrets.credentials import OpenCredential, open_for, open_named

SECRETS_KEPT_SECONDS = 5.0  # how late a changed secret is noticed
MAX_KEPT = 10_000

Opened = dict[str, OpenCredential | QueueOpsError]


class Keyring:
    """The opened credentials of one executor."""

    def __init__(self) -> None:
        self._kept: TTLCache[str, OpenCredential | QueueOpsError] = TTLCache(MAX_KEPT, SECRETS_KEPT_SECONDS)

    def open(self, jobs: Iterable[ClaimedJob]) -> Opened:
        """Return the credentials that jobs name, by name; an error instead of a credential that cannot be opened."""
        names = {job.credential for job in jobs if job.credential}
        known = {name: kept for name in names if (kept := self._kept.get(name)) is not None}
        missing = names - known.keys()
        if not missing:
            return known
        opened: Opened = dict(open_for(missing))
        for name in missing - opened.keys():
            try:
                opened[name] = open_named(name)
            except QueueOpsError as error:
                opened[name] = error
        self._kept.update(opened)
        return known | opened
