"""`manage.py up` as a person uses it: real processes, a data directory of the test's own."""

import contextlib
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError

from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.processes.console import Console
from queueops.site.management.commands.up import Command
from tests.support.embedded import throw_away_data_dir
from tests.support.processes import free_port, started, wait_for
from tests.support.templates import copy_template


@pytest.fixture
def installation() -> Iterator[dict[str, str]]:
    """Give the environment of an installation that uses the embedded server."""
    with throw_away_data_dir() as data_dir:
        yield {
            "DATABASE_URL": "",
            "QUEUEOPS_DATA_DIR": str(data_dir),
            "QUEUEOPS_PORT": str(free_port()),
            "QUEUEOPS_SANDBOX_PORT": str(free_port()),
            "QUEUEOPS_WORKERS": "1",
            "QUEUEOPS_DRAIN_GRACE_SECONDS": "2",
        }


@pytest.fixture
def migrated(installation: dict[str, str], django_db_blocker: Any) -> None:
    """The installation has nothing to migrate: for tests of what comes after that."""
    with django_db_blocker.unblock():
        copy_template(Path(installation["QUEUEOPS_DATA_DIR"]))


def test_a_look_at_the_server_that_fails_ends_nothing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(settings, "QUEUEOPS", replace(settings.QUEUEOPS, port=free_port()))
    command = Command()
    command.console = Console(sys.stdout)
    command._watch(EmbeddedServer(tmp_path / "removed"))()
    assert "PostgreSQL cannot be looked after: " in capsys.readouterr().out


def up(installation: dict[str, str], *arguments: str):
    return started(sys.executable, "manage.py", "up", "--no-demo", *arguments, environ=installation)


def test_a_data_directory_that_may_not_be_written_to_is_told_in_one_sentence(tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(settings, "QUEUEOPS", replace(settings.QUEUEOPS, data_dir=tmp_path / "file" / "data"))
    with pytest.raises(
        CommandError, match=r"QUEUEOPS_DATA_DIR must be a directory that may be written to; .*Not a dir"
    ):
        Command()._refuse_closed_directory()


def server_of(installation: dict[str, str]) -> EmbeddedServer:
    return EmbeddedServer(Path(installation["QUEUEOPS_DATA_DIR"]))


def login_page_answers(installation: dict[str, str]) -> bool:
    address = f"http://127.0.0.1:{installation['QUEUEOPS_PORT']}/admin/login/"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def operators(installation: dict[str, str]) -> list[tuple[str, str]]:
    with psycopg.connect(server_of(installation).dsn()) as connection:
        return connection.execute("SELECT username, password FROM auth_user").fetchall()


def web_process(supervisor: int) -> psutil.Process | None:
    for child in psutil.Process(supervisor).children():
        if "web" in child.cmdline():
            return child
    return None


def test_it_starts_stops_on_sigterm_and_a_second_start_finds_the_same_data(installation: dict[str, str]):
    with up(installation) as first:
        first.wait_for_output("password:", seconds=60)
        first.wait_for_output("/admin/", seconds=60)
        address = f"http://127.0.0.1:{installation['QUEUEOPS_PORT']}"
        assert f"dashboard: {address}/\n" in first.output
        assert f"admin:     {address}/admin/\n" in first.output
        assert login_page_answers(installation), "the address was told before it answered"
        shown = re.search(r"password: (\S+)", first.output)
        assert shown is not None
        password = shown.group(1)
        before = operators(installation)
        assert [name for name, _ in before] == ["operator"]
        assert password not in before[0][1]
        children = psutil.Process(first.pid).children(recursive=True)
        assert first.stop() == 0
        assert "stopped" in first.output
        assert not [child for child in children if child.is_running() and child.status() != "zombie"]
        assert not (server_of(installation).cluster / "postmaster.pid").exists()
    with up(installation) as second:
        second.wait_for_output("password: as before", seconds=60)
        assert operators(installation) == before
        assert second.stop(signal.SIGINT) == 0


@pytest.mark.usefixtures("migrated")
def test_a_second_one_beside_it_is_refused_and_names_the_first(installation: dict[str, str]):
    with up(installation) as first:
        first.wait_for_output("password:", seconds=60)
        with up(installation) as second:
            assert second.process.wait(120) == 1
            assert f"already runs with the data in {installation['QUEUEOPS_DATA_DIR']}" in second.output
            assert f"(process {first.pid})" in second.output
        assert first.runs
        assert first.stop() == 0


def test_a_taken_port_is_named_with_its_setting(installation: dict[str, str]):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(installation["QUEUEOPS_PORT"])))
        taken.listen()
        with up(installation) as process:
            assert process.process.wait(120) == 1
            assert f"Port {installation['QUEUEOPS_PORT']} on 127.0.0.1 cannot be used" in process.output
            assert "QUEUEOPS_PORT" in process.output


@pytest.mark.usefixtures("migrated")
def test_a_crashed_child_and_a_crashed_database_come_back(installation: dict[str, str]):
    with up(installation) as process:
        process.wait_for_output("password:", seconds=60)
        wait_for(lambda: login_page_answers(installation), what="the web process")
        crashed = web_process(process.pid)
        assert crashed is not None
        crashed.kill()
        process.wait_for_output("ended with -9; starts again")
        wait_for(lambda: login_page_answers(installation), what="the web process after its crash")
        postmaster = int((server_of(installation).cluster / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        process.wait_for_output("PostgreSQL was gone; back after", seconds=60)
        wait_for(lambda: login_page_answers(installation), what="the web process after the database's crash")
        assert process.stop() == 0


@pytest.mark.usefixtures("migrated")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_whatever_is_killed_comes_back_and_nothing_is_left_when_it_is_killed_itself(installation: dict[str, str]):
    with up(installation) as process:
        process.wait_for_output("password:", seconds=60)
        wait_for(lambda: login_page_answers(installation), what="the web process")
        guards = of_installation(installation, "embedded.guard")
        assert len(guards) == 1
        guards[0].kill()
        wait_for(lambda: of_installation(installation, "embedded.guard"), what="another guard of the server")
        [sentinel] = wait_for(lambda: cluster_master(process.pid).children(), what="the sentinel")
        below = sentinel.children(recursive=True)
        sentinel.kill()
        assert psutil.wait_procs(below, timeout=60)[1] == []
        process.wait_for_output("starts again")
        wait_for(lambda: ready_executors(installation) == 2, seconds=60, what="the workers' return")
        below = psutil.Process(process.pid).children(recursive=True) + of_installation(installation)
        process.process.kill()
        process.process.wait(120)
        _, left = psutil.wait_procs(below, timeout=60)
        for child in left:
            child.kill()
        assert left == []
        assert of_installation(installation) == []
    with EmbeddedServer(Path(installation["QUEUEOPS_DATA_DIR"])).use() as server:
        assert answers(server)


def answers(server: EmbeddedServer) -> bool:
    with psycopg.connect(server.dsn()) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


def cluster_master(supervisor: int) -> psutil.Process:
    [master] = [child for child in psutil.Process(supervisor).children() if "qcluster" in child.cmdline()]
    return master


def ready_executors(installation: dict[str, str]) -> int:
    alive = "SELECT count(*) FROM jobs_executor WHERE heartbeat_at > now() - interval '30 seconds'"
    with psycopg.connect(server_of(installation).dsn()) as connection:
        [count] = connection.execute(alive).fetchone() or (0,)
        return int(count)


def of_installation(installation: dict[str, str], what: str = "") -> list[psutil.Process]:
    """Processes that name its data directory: the server and its guard."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and what in line and installation["QUEUEOPS_DATA_DIR"] in line:
                found.append(process)
    return found


def test_a_dead_database_at_the_start_is_one_clear_message(installation: dict[str, str]):
    port = free_port()
    address = {"DATABASE_URL": f"postgresql://someone:hunter2@127.0.0.1:{port}/queueops"}
    with up({**installation, **address}) as process:
        assert process.process.wait(120) == 1
        assert f"The database at 127.0.0.1:{port}/queueops does not answer" in process.output
        assert "Traceback" not in process.output
        assert "hunter2" not in process.output
