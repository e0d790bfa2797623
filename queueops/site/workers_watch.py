"""A web process checks that workers carry out jobs: workers that died cannot report it."""

from __future__ import annotations

import logging
import threading

from django.db import DatabaseError, close_old_connections
from psycopg import Error as DriverError

from jobs.services.upkeep.nobody import NobodyWatch

logger = logging.getLogger(__name__)

WORKERS_LOOK_SECONDS = 10.0


class WorkersWatch:
    """A thread that looks every WORKERS_LOOK_SECONDS, as long as the process lives."""

    def __init__(self, watch: NobodyWatch | None = None, *, every_seconds: float = WORKERS_LOOK_SECONDS) -> None:
        self._watch, self._every_seconds = watch or NobodyWatch(), every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workers-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            try:
                self._watch.look()
            except (DatabaseError, DriverError) as error:
                logger.debug("nobody can look whether workers live: %s", error)  # the readiness probe reports it
            except Exception:
                logger.exception("the look whether workers live failed; the next one goes on")
            finally:
                close_old_connections()
