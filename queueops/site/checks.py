"""The checks of an installation in production, for `check --deploy` and `doctor`."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core import checks

from queueops.core.env.reading import unknown_settings
from queueops.core.version import VERSION


@checks.register(deploy=True)
def embedded_database_check(**_: Any) -> list[checks.CheckMessage]:
    """
    Warn of the embedded database. It is no error: one machine with data on its own disk may be all that is wanted.
    """
    if settings.QUEUEOPS.database_url:
        return []
    return [
        checks.Warning(
            "DATABASE_URL is not set: the database is the embedded server, on this machine alone.",
            hint=f"Its data is in {settings.QUEUEOPS.data_dir}. It serves no other host, has no standby, and ends with "
            "the last process that uses it. Set DATABASE_URL to a PostgreSQL server, or keep backups elsewhere.",
            id="queueops.W001",
        )
    ]


@checks.register
def unknown_settings_check(**_: Any) -> list[checks.CheckMessage]:
    """Warn of unknown settings. They are no error: they may be a later version's, if somebody went back to this one."""
    return [
        checks.Warning(
            f"{key} is no setting of version {VERSION}, and is not looked at.",
            hint="docs/reference/settings.md lists those that are.",
            id="queueops.W002",
        )
        for key in unknown_settings(os.environ)
    ]
