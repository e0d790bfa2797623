"""
The Dockerfile's steps make a tree that runs as its user on a root file system that is read only.

No container engine is needed: COPY and RUN are carried out in a namespace, in the directory that WORKDIR names. What
they made is started as ENTRYPOINT and CMD say, as the first process of its namespace.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from django.db import connection

from queueops.core.embedded.cluster import SOCKET
from tests.support.background import in_background
from tests.support.deployment import HOME, Step, stages
from tests.support.environment import make_environment
from tests.support.processes import ROOT, free_port, started, wait_for

PYTHON = "/usr/bin/python3"  # what the base image has; other users can start it
BUILD = f"mount --make-rprivate / && mount -t tmpfs tmpfs /srv && mkdir {HOME} && mount --bind $1 {HOME} && cd {HOME}"
RUN = f"""
{BUILD}
for place in $(cut -d' ' -f2 /proc/self/mounts | sort -u); do
    case $place in /proc|/proc/*|/dev|/dev/*|/sys|/sys/*) ;; *) mount -o remount,ro,bind "$place" ;; esac
done
mount -t tmpfs tmpfs /tmp
user=$2; shift 2
exec setpriv --reuid "${{user%:*}}" --regid "${{user#*:}}" --clear-groups --no-new-privs --bounding-set=-all -- "$@"
"""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed"),
    pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"{PYTHON} is not there"),
]


def said(name: str) -> str:
    """What the last instruction of that name in the last stage says."""
    [*_, found] = [step.text for step in stages()[-1] if step.name == name]
    return found


def carry_out(step: Step, tree: Path) -> None:
    if step.name == "COPY":
        *sources, target = step.words
        for source in sources:
            place = tree / target / (Path(source).name if (ROOT / source).is_file() else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_file():
                shutil.copy(ROOT / source, place)
            else:
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
    if step.name == "RUN":
        command = ("unshare", "--mount", "sh", "-ec", f"{BUILD}\n{step.text}", "sh", tree)
        subprocess.run(command, env={**os.environ, "PYTHON": PYTHON, "COMMIT": "3f2a9c1"}, check=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("image")
    for part in (directory, *directory.parents[:3]):
        if part != Path("/tmp"):  # noqa: S108
            part.chmod(0o755)
    for step in stages()[0]:
        carry_out(step, directory)
    return directory


def command(tree: Path, *arguments: str) -> list[str]:
    entry = [f"{HOME}/.venv/bin/python", *json.loads(said("ENTRYPOINT"))[1:]]
    machine = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*machine, "sh", "-ec", RUN, "sh", str(tree), said("USER"), *entry, *arguments]


@asynccontextmanager
async def by_address(socket: str) -> AsyncIterator[int]:
    """Lead a port of the loopback interface to the test's database, whose socket other users cannot reach."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await source.read(65_536):
                target.write(block)
                await target.drain()
        target.transport.abort()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(socket)
        await asyncio.gather(copy(reader, to_server), copy(from_server, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
def environ(tree: Path) -> Iterator[dict[str, str]]:
    given = dict(word.split("=", 1) for word in said("ENV").split() if not word.startswith("PATH="))
    # What is empty counts as unset; the tests' own settings are for development.
    ours = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "", "QUEUEOPS_DATA_DIR": "", "QUEUEOPS_HOST": "127.0.0.1"}
    made = make_environment("queue.example.org") | ours | {"QUEUEOPS_PORT": str(free_port())}
    parameters = connection.get_connection_params()
    with in_background(by_address(f"{parameters['host']}/{SOCKET}")) as port:
        database = f"postgresql://{parameters['user']}@127.0.0.1:{port}/{parameters['dbname']}?sslmode=disable"
        yield given | made | {"DATABASE_URL": database}


def test_web_and_workers_run_as_its_user_and_write_nothing_and_stop_at_a_signal(tree, environ):
    address = f"http://127.0.0.1:{environ['QUEUEOPS_PORT']}"

    def ready() -> bool:
        try:
            return bool(httpx.get(f"{address}/readyz").json()["executors"] == 3)
        except httpx.TransportError:
            assert web.runs, web.output
            assert workers.runs, workers.output
            return False

    with (
        started(*command(tree, *json.loads(said("CMD"))), environ=environ) as web,
        started(*command(tree, "qcluster"), environ=environ) as workers,
    ):
        wait_for(ready, seconds=120, what="web with three executors")
        inside = {process: first_process_of(process.pid) for process in (web, workers)}
        user = said("USER").split(":")[0]
        assert [Path(f"/proc/{pid}").stat().st_uid for pid in inside.values()] == [int(user)] * 2
        assert "Read-only" not in web.output + workers.output
        for process, pid in inside.items():
            os.kill(pid, 15)
            assert process.process.wait(120) == 0, process.output


def first_process_of(unshare: int) -> int:
    return int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0])


def test_production_finds_nothing_wrong_and_tells_its_commit(tree, environ):
    checked = subprocess.run(
        command(tree, "check", "--deploy", "--fail-level", "WARNING"),
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    told = subprocess.run(command(tree, "version"), capture_output=True, text=True, check=True)
    assert told.stdout.endswith("(3f2a9c1)\n")
