"""
Three hosts on this machine as deploy/ha/ has them: etcd on each, Patroni with PostgreSQL on two, HAProxy before them.

Each host is an address of the loopback network, so that every port and every file is what production has.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

import psutil
import pytest
from django.core.management import call_command

from queueops.core.embedded.host import binaries, system_user
from tests.support.deployment import DEPLOY
from tests.support.embedded import connected_to, throw_away_data_dir
from tests.support.processes import RunningProcess, started, wait_for

HA = DEPLOY / "ha"
PATRONI = "patroni[etcd3]>=4,<5"
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin"
START_SECONDS = 120.0
NUMBERS = r"\d+(?:\.\d+)+"


class Host:
    """One of the hosts: its etcd, and its Patroni with what that has started."""

    def __init__(self, environ: dict[str, str], directory: Path) -> None:
        self.environ = environ
        self.address = environ["PATRONI_RESTAPI_LISTEN"].split(":", maxsplit=1)[0]
        self._directory = directory
        self._running: list[RunningProcess] = []

    def start(self, servers: ExitStack, *programs: tuple[str, ...]) -> None:
        """Start programs as on a host that has just come up; what it had on its disk is there."""
        for program in programs:
            self._running.append(servers.enter_context(started(*program, environ=self.environ)))

    def serves_as(self, role: str) -> bool:
        """Whether Patroni says that it has this role: `primary`, or `sync`, the standby that commits wait for."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:8008/{role}", timeout=2):
                return True
        except OSError:
            return False

    def processes(self) -> list[psutil.Process]:
        """All that runs there; PostgreSQL is a session of its own, found by where it works."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(str(self._directory)):
                    found.append(process)
        return found

    def freeze(self) -> None:
        """As a machine that hangs: connections stay open, and nothing answers."""
        for process in self.processes():
            process.suspend()

    def thaw(self) -> None:
        for process in self.processes():
            process.resume()

    def die(self) -> None:
        """As a machine that loses its power: no process of it does anything more."""
        self.freeze()  # or one would see another end, and say good-bye in order
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        wait_for(lambda: not self.processes(), what="the end of all that ran on the host")
        self._running.clear()

    @property
    def output(self) -> str:
        return "".join(running.output[-3000:] for running in self._running)


class Hosts:
    """
    Hosts 1 and 2 of three.

    Attributes:
        versions: What they run.
    """

    def __init__(self, directory: Path, servers: ExitStack) -> None:
        self._servers = servers
        self._directory = directory
        self._network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
        self._patroni = str(_patroni(directory))
        self._etcd = _program("etcd", "etcd-server")
        self._haproxy = _program("haproxy", "haproxy")
        self._binaries = _postgresql(directory)
        shutil.copy(HA / "patroni.yaml", directory)  # the checkout may be closed to the server's user
        made = (sys.executable, "-I", str(HA / "make_hosts.py"), str(directory / "made"))
        subprocess.run((*made, *(f"{self._network}.1{number}" for number in (1, 2, 3))), check=True)
        self.one, self.two, self._three = (self._host(number) for number in (1, 2, 3))

    def _host(self, number: int) -> Host:
        disk = self._directory / f"host-{number}"
        disk.mkdir()
        if owner := system_user():
            shutil.chown(disk, owner)
        own = {
            "PATRONI_POSTGRESQL_DATA_DIR": str(disk / "postgresql"),
            "PATRONI_POSTGRESQL_BIN_DIR": str(self._binaries),
            "ETCD_DATA_DIR": str(disk / "etcd"),
            "HOME": str(disk),
        }
        return Host({**_environment(self._directory / f"made/host-{number}.env"), **own}, disk)

    def start(self) -> None:
        """Start all, the first of the hosts as the primary; commits wait for the second."""
        for host in (self.one, self.two, self._three):
            host.start(self._servers, self._on(host, self._etcd))
        self.one.start(self._servers, self._on(self.one, self._patroni, str(self._directory / "patroni.yaml")))
        self._wait_for(self.one, "primary")
        self.two.start(self._servers, self._on(self.two, self._patroni, str(self._directory / "patroni.yaml")))
        self._wait_for(self.two, "sync")
        environ = {**_environment(self._directory / "made/haproxy.env"), "PROXY_ADDRESS": self.address}
        proxy = self._servers.enter_context(started(self._haproxy, "-f", str(HA / "haproxy.cfg"), environ=environ))
        for number in (2, 3):  # before its first checks it takes every server for the primary
            proxy.wait_for_output(f"Server primary/postgres-{number} is DOWN")

    def bring_back(self, host: Host) -> None:
        """Start a host that died, and wait until commits wait for it."""
        host.start(
            self._servers,
            self._on(host, self._etcd),
            self._on(host, self._patroni, str(self._directory / "patroni.yaml")),
        )
        self._wait_for(host, "sync")

    @property
    def address(self) -> str:
        """HAProxy's, which is where the database is for everybody."""
        return f"{self._network}.1"

    @property
    def superuser(self) -> tuple[str, str]:
        return self.one.environ["PATRONI_SUPERUSER_USERNAME"], self.one.environ["PATRONI_SUPERUSER_PASSWORD"]

    @cached_property
    def versions(self) -> str:
        commands = {
            "Patroni": (self._patroni, "--version"),
            "PostgreSQL": (str(self._binaries / "postgres"), "--version"),
            "etcd": (self._etcd, "--version"),
            "HAProxy": (self._haproxy, "-v"),
        }
        told = {
            name: subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for name, command in commands.items()
        }
        return ", ".join(f"{name} {re.findall(NUMBERS, text)[0]}" for name, text in told.items())

    def prepare(self) -> str:
        """Make the roles and the database as deploy/database.sql has them; the login's password."""
        password = secrets.token_hex(16)
        user, secret = self.superuser
        psql = (str(self._binaries / "psql"), "--quiet", "--host", self.address, "--username", user, "postgres")
        environ = {**os.environ, "PGPASSWORD": secret, "DATABASE_PASSWORD": password}

        subprocess.run((*psql, "--file", str(DEPLOY / "database.sql")), env=environ, check=True)
        return password

    def _on(self, host: Host, *command: str) -> tuple[str, ...]:
        owner = system_user()
        user = ("setpriv", "--reuid", owner, "--regid", owner, "--clear-groups", "--") if owner else ()
        return ("env", "--chdir", host.environ["HOME"], *user, *command)

    def _wait_for(self, host: Host, role: str) -> None:
        try:
            wait_for(lambda: host.serves_as(role), seconds=START_SECONDS, what=f"{host.address} as {role}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{host.output}") from None


@contextmanager
def patroni_hosts() -> Iterator[Hosts]:
    """Running hosts with a migrated database, which Django is connected to by HAProxy, as the login `queueops`."""
    if not sys.platform.startswith("linux"):
        pytest.skip("PATRONI NOT TESTED: hosts are addresses of the loopback network, which Linux alone has at once")
    with throw_away_data_dir() as directory, ExitStack() as servers:
        hosts = Hosts(directory, servers)
        for host in (hosts.one, hosts.two):
            servers.callback(host.die)
        hosts.start()
        password = hosts.prepare()
        with connected_to(hosts.address, 5432, user="queueops", password=password):
            call_command("migrate", verbosity=0)
            yield hosts


def _environment(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def _program(name: str, package: str) -> str:
    found = shutil.which(name, path=SEARCHED)
    if found is None:
        pytest.skip(f"PATRONI NOT TESTED: {name} is not installed (Debian's package {package})")
    return found


def _postgresql(directory: Path) -> Path:
    """Debian's newest, or the embedded server's."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return installed[-1].parent if installed else binaries(directory)


def _patroni(directory: Path) -> Path | str:
    """The one that is installed, or one from PyPI in an environment of its own, which goes with the directory."""
    if found := shutil.which("patroni"):
        return found
    venv = directory / "patroni"
    # As root the server's user runs it, to whom the Python that runs this may be closed.
    python = next(iter(Path("/usr/bin").glob("python3")), sys.executable) if system_user() else sys.executable
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install", "--quiet")
    for command in ((str(python), "-m", "venv", "--without-pip", str(venv)), (*pip, PATRONI, "psycopg[binary]")):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.skip(f"PATRONI NOT TESTED: it is not installed, nor to be had: {ended.stderr.strip()[-300:]}")
    return venv / "bin/patroni"
