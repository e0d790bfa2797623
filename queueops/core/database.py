"""How Django reaches PostgreSQL: the connection's settings, and the web process's pool."""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from queueops.core.errors import QueueOpsError
from queueops.core.postgres.watched_line import WatchedConnection

MIN_POSTGRES = 15
REPLICA_CONNECTIONS = 4  # at most, in a web process; a read that finds none of them free goes to the primary
REPLICA_SECONDS = 1  # how long a read waits for such a connection before it goes to the primary
POOL_SECONDS = 5  # how long a request waits for a connection, and how long the pool tries to reconnect
WEB_SILENT_SECONDS = 3.0  # ten seconds, with the wait for a thread (up to 4 s) and the check of the server (mostly 3 s)
# With these options, a connection that was lost without a TCP close is noticed within about ten seconds.
PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def database_settings(url: str, *, prepare: bool = False) -> dict[str, Any]:
    """
    Return Django's DATABASES entry for `postgresql://user:password@host:port,host:port/name?option=value`, as libpq
    reads it. From several hosts libpq takes the first that answers and has the role in `target_session_attrs`.

    CONN_MAX_AGE is 0, because Django refuses to pool connections that have another value; the web process pools.

    Args:
        prepare: Plan hot statements once per connection. Must be off behind a pooler that gives each transaction
            another session of the server.
    """
    options = conninfo_to_dict(url)
    return {
        "ENGINE": "queueops.core.postgres",
        "NAME": options.pop("dbname", ""),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": options.pop("host", ""),
        "PORT": str(options.pop("port", "")),
        "CONN_MAX_AGE": 0,
        # Server-side cursors fail behind a pooler that gives each transaction another session.
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {
            **PATIENCE,
            "application_name": "queueops",
            "prepare_threshold": 2 if prepare else None,
            **options,
        },
    }


def use_connection_pool(max_size: int) -> None:
    """
    Pool this process's connections.

    Only for the web process, which never forks. In a worker, django-q2's sentinel forks replacements later: both
    processes would share the pool's sockets, and each would read the other's rows.
    """
    from django.db import connections

    WatchedConnection.silent_seconds = WEB_SILENT_SECONDS
    connections.close_all()  # a connection opened before now belongs to no pool, and could not be returned to one
    connections.settings["default"]["OPTIONS"]["pool"] = {
        "min_size": 1,
        "max_size": max_size,
        "timeout": POOL_SECONDS,
        "connection_class": WatchedConnection,
        # Give up soon: otherwise the pool doubles its pauses, and still waits when the server is back.
        "reconnect_timeout": POOL_SECONDS,
    }
    if "replica" in connections.settings:
        connections.settings["replica"]["OPTIONS"]["pool"] = {
            "min_size": 0,
            "max_size": min(max_size, REPLICA_CONNECTIONS),
            "timeout": REPLICA_SECONDS,
            "connection_class": WatchedConnection,
            "reconnect_timeout": POOL_SECONDS,
        }


def connect_directly(**options: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection besides Django's and the pool's, in autocommit mode; `options` override the settings."""
    from django.db import connections

    parameters = connections["default"].get_connection_params()
    for name in ("pool", "context", "cursor_factory", "client_encoding"):
        parameters.pop(name, None)
    return WatchedConnection.connect(**{**parameters, **PATIENCE, **options}, autocommit=True)


class UnsuitableDatabase(QueueOpsError):
    """The database cannot carry QueueOps."""

    code = "unsuitable_database"
    status = 500


def ensure_suitable_database() -> None:
    """
    Raise UnsuitableDatabase unless the database answers and is new enough.

    The message names neither user nor password.
    """
    from django.db import DatabaseError, connection

    try:
        connection.ensure_connection()
    except DatabaseError as error:
        reason = " ".join(str(error).split())
        raise UnsuitableDatabase(f"The database at {_address()} does not answer: {reason}") from error
    version = connection.cursor().connection.info.server_version
    if version < MIN_POSTGRES * 10_000:
        raise UnsuitableDatabase(
            f"The database at {_address()} is PostgreSQL {version // 10_000}; QueueOps needs {MIN_POSTGRES} or newer."
        )


def _address() -> str:
    from django.db import connection

    settings = connection.settings_dict
    return f"{settings['HOST'] or 'localhost'}:{settings['PORT'] or 5432}/{settings['NAME']}"
