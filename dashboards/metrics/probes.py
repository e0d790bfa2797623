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
        reasons: Why it is not ready, in words that tell nothing of addresses or accounts; empty: it is.
        executors: Workers that renewed lately. No reason: a web process accepts work while there are none.
        warnings: Faults that do not keep it from accepting work, and that a person should know.
    """

    reasons: tuple[str, ...] = ()
    executors: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        return not self.reasons


@dataclass(slots=True)
class _Migrations:
    """Comparing takes tens of milliseconds, and an applied migration stays applied: asked only until all are."""

    are_applied: bool = False

    def check(self) -> bool:
        if not self.are_applied:
            # It may have started before they were.
            self.are_applied = is_migrated() and give_rights()
        return self.are_applied


@dataclass(slots=True)
class ReadinessProbe:
    """The readiness of one process."""

    migrations: _Migrations = field(default_factory=_Migrations)

    def ask(self) -> Readiness:
        """Look at the database, at its migrations, and at who works."""
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
