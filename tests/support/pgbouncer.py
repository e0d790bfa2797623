"""A real PgBouncer before the test's database."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from queueops.core.embedded.host import system_user
from tests.support.processes import free_port, started, wait_for

FOUND = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SESSIONS = 4

needs_pgbouncer = pytest.mark.skipif(FOUND is None, reason="PgBouncer is not installed")


@contextmanager
def pgbouncer(mode: str) -> Iterator[str]:
    """Run it with SESSIONS sessions of the server, in `session` or `transaction` mode; gives a DATABASE_URL."""
    parameters = connection.get_connection_params()
    server = " ".join(
        f"{name}={parameters[name]}" for name in ("host", "port", "user", "password", "dbname") if parameters.get(name)
    )
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="queueops-pgbouncer-") as directory:
        Path(directory).chmod(0o755)
        settings = Path(directory) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npooled = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {SESSIONS}\n"
            "ignore_startup_parameters = options,extra_float_digits\n"
        )
        settings.chmod(0o644)
        # As root it refuses to run; the embedded server lets in nobody but its own user.
        user = ["-u", owner] if (owner := system_user()) else []
        with started(str(FOUND), *user, str(settings)) as process:

            def listens() -> bool:
                assert process.runs, process.output
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                except OSError:
                    return False
                return True

            wait_for(listens, what="PgBouncer")
            yield f"postgresql://anybody@127.0.0.1:{port}/pooled"
