"""Producers that go on whatever happens to the database."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from uuid import UUID

from tests.support.processes import wait_for

PRODUCERS = 3


class Producers:
    """
    Threads that submit job after job by HTTP.

    Attributes:
        acknowledged: The ids that they were told.
        longest_seconds: How long one of them was kept waiting for an answer, or for the connection's end.
    """

    def __init__(self, url: str, key: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self.acknowledged: list[UUID] = []
        self.refused = 0
        self.longest_seconds = 0.0
        self._url = f"{url}/api/v1/jobs/"
        self._key = key
        self._now = now
        self._over = threading.Event()

    def submit(self) -> UUID | None:
        """Submit one job; its id, or None without an acknowledgement."""
        body = json.dumps({"kind": "faults.write_once", "payload": {"seconds": 0.05}}).encode()
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._url, data=body, headers=headers)  # noqa: S310 - our own server
        begun = self._now()
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:  # noqa: S310
                job_id = UUID(json.load(answer)["id"])
        except (OSError, HTTPException):
            self.refused += 1
            return None
        finally:
            self.longest_seconds = max(self.longest_seconds, self._now() - begun)
        self.acknowledged.append(job_id)
        return job_id

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._work) for _ in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more submits are acknowledged."""
        enough = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= enough, seconds=60, what=f"{count} acknowledged submits")

    def _work(self) -> None:
        while not self._over.wait(0.02):
            self.submit()
