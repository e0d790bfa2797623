"""PostgreSQL, and the replica beside it."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from queueops.core.values import parse

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    section: ClassVar[str] = "Database"

    database_url: str = setting(
        "PostgreSQL 15 or newer: `postgresql://user:password@host:5432/name`, or several hosts of which one is the "
        "primary: `…@h1:5432,h2:5432/name?target_session_attrs=read-write`. Unset: the embedded server.",
        parse.POSTGRES_URL,
        default="",
        variable="DATABASE_URL",
        shown_default="unset: embedded PostgreSQL 18",
        secret=True,
    )
    data_dir: Path = setting(
        "Where the embedded server keeps its cluster, and development its keys. As root choose no "
        "directory below a private home: the server runs as another user that must be able to reach it.",
        parse.PATH,
        default=Path(),
        shown_default="`.data` in the checkout; as root below a private directory `/var/lib/queueops/<id>`",
    )
    pool_size: int = setting(
        "Most connections of one web process; workers never pool.",
        parse.integer(1, 500),
        default=10,
    )
    replica_url: str = setting(
        "A streaming standby for the admin's lists, exports, charts and the depths of `/metrics`, written like "
        "DATABASE_URL; of several hosts `?target_session_attrs=standby` takes one that is no primary. "
        "[Reads off the primary](../how-to/production.md#reads-off-the-primary).",
        parse.POSTGRES_URL,
        default="",
        variable="DATABASE_REPLICA_URL",
        shown_default="unset: everything is read from the primary",
        secret=True,
    )
    replica_max_lag_seconds: float = setting(
        "A replica that lags more is not read, and for so long after writing a browser's pages come from the primary.",
        parse.number(0.1, 3600),
        default=10.0,
    )
    listen: bool = setting(
        "Wake up by LISTEN/NOTIFY and prepare hot statements. Turn it off behind PgBouncer in transaction mode, where "
        "nothing starts with it; polling is enough.",
        parse.BOOLEAN,
        default=True,
    )
