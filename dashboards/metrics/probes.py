"""Whether this process lives, and whether it can do its work."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError
from psycopg import Error as DriverError

from jobs.models import Executor
from jobs.services.upkeep.nobody import nobody_works
from queueops.core.clock import Now
from queueops.core.postgres.conditions import ServerCondition, standing_condition
from queueops.core.upgrade import is_migrated
from queueops.core.web.leaving import LEAVING
from queueops.tenancy.rights import give_rights


@dataclass(frozen=True, slots=True)
class Readiness:
    """
    Attributes:
        reasons: Why the process is not ready, without addresses or accounts; empty: it is ready.
        executors: How many workers sent a heartbeat lately. Zero is no reason: a web process accepts work without them.
        warnings: Faults that a person should know, but that do not keep the process from accepting work.
    """

    reasons: tuple[str, ...] = ()
    executors: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        return not self.reasons


@dataclass(slots=True)
class _Migrations:
    """Checks migrations only until all are applied: comparing takes tens of milliseconds, and they stay applied."""

    are_applied: bool = False

    def check(self) -> bool:
        if not self.are_applied:
            # This process may have started before the migrations.
            self.are_applied = is_migrated() and give_rights()
        return self.are_applied


@dataclass(slots=True)
class ReadinessProbe:
    """The readiness of one process."""

    migrations: _Migrations = field(default_factory=_Migrations)

    def ask(self) -> Readiness:
        """Check the database, its migrations, and whether workers live."""
        if LEAVING.is_set():
            return Readiness(("it is about to stop",))
        try:
            if condition := standing_condition():
                return Readiness((condition.reason,))
            if not self.migrations.check():
                return Readiness(("migrations are not applied",))
            silent = Now() - timedelta(seconds=settings.QUEUEOPS.lease_seconds)
            executors = Executor.objects.filter(heartbeat_at__gt=silent, draining=False).count()
            nobody = None if executors else nobody_works()
            return Readiness(executors=executors, warnings=(nobody.words,) if nobody else ())
        except ServerCondition as condition:
            return Readiness((condition.reason,))
        except (DatabaseError, DriverError):
            return Readiness(("the database does not answer",))
