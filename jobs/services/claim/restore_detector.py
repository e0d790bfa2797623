"""
Notices a database that was put back to an earlier moment: by a backup restored under running executors, or by a
standby that took over without the newest commits.

Such a database shows jobs as waiting that have already run. Only the executors that claimed these jobs remember them.
An executor that has connected again therefore looks for its claims before it claims anything. If a claim is missing,
the executor begins a new epoch and pauses everything. A standby that has every commit lacks no claim, and work goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs.models import Epoch
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.operate.epochs import PUT_BACK_REASON, declare_put_back
from queueops.core.postgres.conditions import ReadOnlyServer
from queueops.core.sql import run_sql

logger = logging.getLogger(__name__)

REMEMBERED = 1000  # claims that an executor remembers
# After a crash, the server's token sequence may be this far behind tokens that it gave out but did not commit.
UNCERTAIN = 100


class RestoreDetector:
    """Remembers one executor's own last committed claims, and how high the tokens of all claims have risen."""

    def __init__(self, executor_id: UUID) -> None:
        self._executor_id = executor_id
        self._claims: deque[tuple[UUID, str, int]] = deque(maxlen=REMEMBERED)
        self._reached = 0
        self._since: datetime | None = None  # when the epoch of these claims began

    def note(self, claimed: Iterable[ClaimedJob]) -> None:
        """Remember claims that were committed."""
        for job in claimed:
            self._claims.append((job.id, job.project, job.token))
            self._reached = max(self._reached, job.token)

    def refuse_the_past(self) -> bool:
        """
        Begin a new epoch with everything paused, once, if the database lacks claims that were committed.

        An executor calls this after it has connected, and regularly: behind a pooler a connection may outlive its
        server.

        Returns:
            Whether the epoch has changed since the last call, whoever began it.

        Raises:
            ReadOnlyServer: The server is a standby, which may lag, so a missing claim proves nothing.
        """
        began_at = Epoch.objects.values_list("began_at", flat=True).get()
        if self._since is not None and began_at > self._since:
            self._forget()  # a new epoch has begun since: the remembered claims are of the old one
        known = {**self._known(), "reached": self._reached}
        [(lacks, reached, is_standby)] = run_sql("jobs", "find_undone_claims", known)
        if is_standby:
            raise ReadOnlyServer(ReadOnlyServer.reason)
        if self._since is not None and (lacks or began_at < self._since):
            if declare_put_back(since=self._since, actor=f"executor:{self._executor_id}"):
                logger.critical("executor %s: %s Everything is paused.", self._executor_id, PUT_BACK_REASON)
            self._forget()
            began_at = Epoch.objects.values_list("began_at", flat=True).get()
        is_new, self._since = self._since not in {None, began_at}, began_at
        self._reached = max(self._reached, reached - UNCERTAIN)
        return is_new

    def _known(self) -> dict[str, list[Any]]:
        return {
            "ids": [job for job, _, _ in self._claims],
            "projects": [project for _, project, _ in self._claims],
            "tokens": [token for _, _, token in self._claims],
        }

    def _forget(self) -> None:
        self._claims.clear()
        self._reached = 0
