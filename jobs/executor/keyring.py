"""The credentials that an executor's jobs name, opened and kept for a few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable

from jobs.services.finish.claimed import ClaimedJob
from queueops.core.errors import QueueOpsError
from queueops.tenancy.credentials import OpenCredential, open_for, open_named

KEPT_SECONDS = 5.0  # how late a changed secret is noticed

Opened = dict[str, OpenCredential | QueueOpsError]


class Keyring:
    """One executor's."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, OpenCredential | QueueOpsError]] = {}

    def open(self, jobs: Iterable[ClaimedJob]) -> Opened:
        """Return the credentials that jobs name, by name; an error for one that cannot be opened."""
        names = {job.credential for job in jobs if job.credential}
        if not names:
            return {}
        now = time.monotonic()
        missing = {name for name in names if self._kept.get(name, (0.0,))[0] < now}
        opened: Opened = dict(open_for(missing))
        for name in missing - opened.keys():
            try:
                opened[name] = open_named(name)
            except QueueOpsError as error:
                opened[name] = error
        self._kept.update((name, (now + KEPT_SECONDS, found)) for name, found in opened.items())
        return {name: self._kept[name][1] for name in names}
