"""A primary and its synchronous standby on this machine, behind a line that leads to whichever is the primary."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg

from queueops.core.embedded.cluster import SOCKET, SUPERUSER, EmbeddedServer
from queueops.core.embedded.host import system_user
from tests.support.bad_line import BadLine, bad_line
from tests.support.embedded import connected_to, throw_away_data_dir
from tests.support.own_server import migrated_server
from tests.support.processes import wait_for

STANDBY = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"


class Pair:
    """Two servers; commits of the primary wait for the standby."""

    def __init__(self, primary: EmbeddedServer, line: BadLine, servers: ExitStack) -> None:
        self.primary = primary
        self.standby: EmbeddedServer | None = None
        self.line = line
        self._servers = servers

    def add_standby(self) -> None:
        """Copy the primary, let the copy follow it, and have commits wait for it from now on."""
        standby = EmbeddedServer(self._servers.enter_context(throw_away_data_dir()))
        standby.cluster.mkdir(mode=0o700)
        if owner := system_user():
            shutil.chown(standby.cluster, owner)
        source = ("-h", str(self.primary.socket_dir), "-U", SUPERUSER)
        self.primary._run("pg_basebackup", *source, "-R", "--no-sync", "-c", "fast", "-D", str(standby.cluster))
        self._servers.enter_context(standby.use())
        with psycopg.connect(self.primary.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            wait_for(lambda: admin.execute(STANDBY).fetchone() == (1,), what="the synchronous standby")
        self.standby = standby

    def kill_primary(self) -> None:
        """As a host that loses its power: no process of it does anything more."""
        postmaster = psutil.Process(int((self.primary.cluster / "postmaster.pid").read_text().split("\n", 1)[0]))
        postmaster.suspend()  # or it would end its children in order
        for process in [*postmaster.children(recursive=True), postmaster]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def promote(self) -> None:
        """What a failover manager does: the standby takes writes, and new connections go to it."""
        assert self.standby is not None
        with psycopg.connect(self.standby.dsn(), autocommit=True) as admin:
            assert admin.execute("SELECT pg_promote(true, 30)").fetchone() == (True,)
        self.primary, self.standby = self.standby, None
        self.line.lead_to(socket_of(self.primary))


def socket_of(server: EmbeddedServer) -> Path:
    return server.socket_dir / SOCKET


@contextmanager
def primary_and_standby() -> Iterator[Pair]:
    """A migrated pair, with Django pointed at its line."""
    with ExitStack() as servers:
        primary = servers.enter_context(migrated_server())
        with bad_line(socket_of(primary)) as line, connected_to("127.0.0.1", line.port):
            pair = Pair(primary, line, servers)
            pair.add_standby()
            yield pair
