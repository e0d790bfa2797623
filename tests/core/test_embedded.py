"""The embedded server's life, on servers of the tests' own."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from queueops.core.embedded.cluster import SOCKET, SUPERUSER, EmbeddedServer
from queueops.core.embedded.host import EmbeddedServerError, default_data_dir, system_user
from queueops.core.secret_key import development_secret_key
from tests.support.embedded import throw_away_data_dir
from tests.support.processes import started, wait_for

USER = """
import signal, sys
from pathlib import Path
from queueops.core.embedded.cluster import EmbeddedServer

with EmbeddedServer(Path(sys.argv[1])).use():
    print("using", flush=True)
    signal.pause()
"""


KEY = """
import sys
from pathlib import Path
from queueops.core.secret_key import development_secret_key

print(development_secret_key(Path(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """For tests that leave a server stopped: initdb takes longer than all that they do."""
    with throw_away_data_dir() as made:
        yield made


def scalar(server: EmbeddedServer, statement: str) -> object:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
        assert row is not None
        return row[0]


def answers(server: EmbeddedServer) -> bool:
    try:
        psycopg.connect(server.dsn()).close()
    except psycopg.OperationalError:
        return False
    return True


def test_the_last_user_stops_the_server_and_the_data_stay(directory: Path):
    server = EmbeddedServer(directory)
    with server.use():
        assert scalar(server, "SHOW fsync") == "on"
        assert scalar(server, "SHOW synchronous_commit") == "on"
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
        with started(sys.executable, "-c", USER, str(directory)) as other:
            other.wait_for_output("using")
            with EmbeddedServer(directory).use():
                pass
            assert answers(server)
    assert not answers(server)
    with EmbeddedServer(directory).use():
        assert scalar(server, "SELECT seven FROM kept") == 7


def test_a_killed_user_does_not_keep_the_server_and_a_killed_server_comes_back(directory: Path):
    server = EmbeddedServer(directory)
    with server.use():
        with started(sys.executable, "-c", USER, str(directory)) as other:
            other.wait_for_output("using")
            other.send(signal.SIGKILL)
            other.process.wait()
        postmaster = int((server.cluster / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGKILL)
        wait_for(lambda: not answers(server), what="the server's death")
        assert server.ensure_running() is True
        assert server.ensure_running() is False
    assert not answers(server)


def test_a_left_over_pid_file_that_names_a_stranger_does_not_prevent_the_start(directory: Path):
    server = EmbeddedServer(directory)
    with server.use():
        lines = (server.cluster / "postmaster.pid").read_text().splitlines()
    with started("sleep", "60") as stranger:
        lines[0] = str(stranger.pid)
        (server.cluster / "postmaster.pid").write_text("\n".join(lines) + "\n")
        with server.use():
            assert answers(server)


def test_a_server_whose_every_user_was_killed_is_stopped():
    with throw_away_data_dir() as directory:
        server = EmbeddedServer(directory)
        with started(sys.executable, "-c", USER, str(directory)) as user:
            user.wait_for_output("using")
            assert answers(server)
            user.send(signal.SIGKILL)
            wait_for(lambda: not (server.cluster / "postmaster.pid").exists(), what="the server's end")


def test_a_copy_starts_beside_its_original_and_neither_harms_the_other():
    with throw_away_data_dir() as directory, throw_away_data_dir() as elsewhere:
        original, backup, image = (EmbeddedServer(place) for place in (directory, elsewhere / "a", elsewhere / "b"))
        with original.use():
            scalar(original, "SELECT 1")
            backup.data_dir.mkdir(mode=0o711)
            backup.cluster.mkdir(mode=0o700)
            if owner := system_user():
                shutil.chown(backup.cluster, owner)
            original._run(
                *("pg_basebackup", "-D", str(backup.cluster), "-h", str(original.socket_dir), "-U", SUPERUSER),
                *("--checkpoint=fast",),
            )
            assert not list(backup.cluster.glob(f"{SOCKET}*"))
            # A snapshot of the disk has the lock files of the living server as well.
            subprocess.run(["cp", "-a", str(backup.data_dir), str(image.data_dir)], check=True)
            (image.data_dir / "run").mkdir(mode=0o700)
            for name in ("postgresql/postmaster.pid", f"run/{SOCKET}.lock"):
                shutil.copy(directory / name, image.data_dir / name)
            with backup.use(), image.use():
                assert {answers(server) for server in (original, backup, image)} == {True}
            assert answers(original)
            shutil.copy(original.cluster / "postmaster.pid", image.cluster)
            image.stop()
            assert answers(original)


def test_a_socket_directory_that_somebody_else_has_made_is_refused():
    with throw_away_data_dir() as directory:
        server = EmbeddedServer(directory / ("d" * 90))
        server.socket_dir.symlink_to(directory)
        try:
            with pytest.raises(EmbeddedServerError, match="is somebody else's"), server.use():
                pass
        finally:
            server.socket_dir.unlink()


def test_only_its_owner_may_reach_the_socket_even_where_the_path_is_too_long_for_one():
    with throw_away_data_dir() as directory:
        deep = directory / ("d" * 90)
        server = EmbeddedServer(deep)
        with server.use():
            assert not server.socket_dir.is_relative_to(deep)
            for place in (server.socket_dir, server.cluster):
                assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0
        server.socket_dir.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_root_is_refused_a_directory_below_a_private_one_and_no_permission_is_opened(tmp_path: Path):
    private = tmp_path / "home"
    private.mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match="closed to other users"), EmbeddedServer(private / "data").use():
        pass
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert default_data_dir(private).is_relative_to("/var/lib/queueops")


def test_the_development_key_is_made_once_and_is_private(tmp_path: Path):
    keys = {
        subprocess.run(
            [sys.executable, "-c", KEY, str(tmp_path / "data")], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    }
    assert keys == {development_secret_key(tmp_path / "data")}
    assert stat.S_IMODE((tmp_path / "data" / "secret_key").stat().st_mode) == 0o600
