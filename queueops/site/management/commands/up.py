import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management import call_command, get_commands
from django.core.management.base import CommandError
from django.db import connections
from psycopg import Error as DriverError

from jobs.features.pools.pools import ensure_pool
from queueops.core.database import ensure_suitable_database
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.errors import QueueOpsError
from queueops.core.operator_account import OperatorAccount, ensure_operator
from queueops.core.pooler import ensure_session_is_ours
from queueops.core.processes.console import Console
from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.processes.single import AlreadyRunning, only_holder
from queueops.core.processes.stop_signals import handle_stop
from queueops.core.processes.supervisor import ChildSpec, Supervisor, python_command
from queueops.core.web.ports import PortTaken
from queueops.tenancy.checks import ensure_projects_are_kept_apart
from queueops.tenancy.secrets.secret_key import ensure_own_secret_key
from ratelimits.limits.defaults import load_limits_if_none

RULE = "-" * 60
DRAIN_MARGIN_SECONDS = 15.0  # how much longer than the executors' grace period django-q2 may take
WEB_MARGIN_SECONDS = 10.0  # how much longer than its requests' grace period the web process may take


class Command(OperatorCommand):
    help = "Start everything on this machine: PostgreSQL (unless DATABASE_URL is set), web, workers, sandbox."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--no-demo",
            action="store_true",
            help="No sandbox provider and no demo project; the default when QUEUEOPS_DEBUG is off.",
        )

        parser.add_argument("--pool", help="The workers carry out the jobs of this pool only, see manage.py qcluster.")

    def handle(self, *args: Any, no_demo: bool, pool: str | None = None, **options: Any) -> None:
        self.pool = pool
        self.console = Console(sys.stdout)
        # Until the supervisor handles them, signals raise KeyboardInterrupt, so that the context managers clean up.
        handle_stop(signal.default_int_handler)
        demo = settings.QUEUEOPS.debug and not no_demo
        self._refuse_closed_directory()
        try:
            with only_holder(settings.QUEUEOPS.data_dir / "up.lock"), self._database() as server:
                self._refuse_taken_ports(demo=demo)
                ensure_suitable_database()
                self.say("up", "bringing the tables up to date")
                call_command("migrate", verbosity=0, interactive=False)
                ensure_projects_are_kept_apart()
                ensure_own_secret_key()
                ensure_session_is_ours()
                ensure_pool(settings.QUEUEOPS.pool if pool is None else pool)
                operator = ensure_operator()
                if settings.QUEUEOPS.debug and load_limits_if_none():
                    self.say("up", "loaded the default limits (manage.py load_limits shows and restores them)")
                # The supervisor needs no database session: an idle one would only take up a slot.
                connections.close_all()
                self._supervise(operator, server, demo=demo)
        except AlreadyRunning as error:
            raise CommandError(
                f"QueueOps already runs with the data in {settings.QUEUEOPS.data_dir} (process {error.details['pid']})."
            ) from error
        except KeyboardInterrupt:
            self.say("up", "stopped while starting")
            return
        self.say("up", "stopped")

    def say(self, name: str, line: str) -> None:
        self.console.say(name, line)

    @contextlib.contextmanager
    def _database(self) -> Iterator[EmbeddedServer | None]:
        if settings.QUEUEOPS.database_url:
            yield None
            return
        self.say("up", f"starting PostgreSQL in {settings.QUEUEOPS.data_dir}")
        with EmbeddedServer(settings.QUEUEOPS.data_dir).use() as server:
            yield server

    def _supervise(self, operator: OperatorAccount, server: EmbeddedServer | None, *, demo: bool) -> None:
        environ = dict(os.environ)
        if demo:
            # The demo's jobs call the sandbox on 127.0.0.1.
            environ.setdefault("QUEUEOPS_ALLOW_LOOPBACK_TARGETS", "on")
        supervisor = Supervisor(
            self._children(demo=demo),
            environ=environ,
            say=self.say,
            each_second=self._watch(server),
        )
        try:
            supervisor.run(on_started=lambda: self._introduce(operator))
        finally:
            self.console.close()

    def _children(self, *, demo: bool) -> list[ChildSpec]:
        manage = str(settings.BASE_DIR / "manage.py")
        grace = settings.QUEUEOPS.drain_grace_seconds
        only = () if self.pool is None else ("--pool", self.pool)
        children = [
            ChildSpec("web", python_command(manage, "web"), stop_seconds=grace + WEB_MARGIN_SECONDS),
            ChildSpec("workers", python_command(manage, "qcluster", *only), stop_seconds=grace + DRAIN_MARGIN_SECONDS),
        ]
        if demo and importlib.util.find_spec("sandbox"):
            port = str(settings.QUEUEOPS.sandbox_port)
            # The sandbox starts first and stops last, because draining jobs still call it.
            children.insert(0, ChildSpec("sandbox", python_command("-m", "sandbox", "--port", port)))
        if demo and "seed_demo" in get_commands():
            children.append(ChildSpec("demo", python_command(manage, "seed_demo", "--watch"), once=True))
        return children

    def _watch(self, server: EmbeddedServer | None) -> Any:
        """
        Return a function to call each second: it tells the address once that answers, and keeps PostgreSQL running.
        """
        is_open = False

        def ensure() -> None:
            nonlocal is_open
            if not is_open and _answers(settings.QUEUEOPS.host, settings.QUEUEOPS.port):
                is_open = True
                self._announce()
            if server is None:
                return
            began = time.monotonic()
            try:
                if server.ensure_running():
                    self.say("up", f"PostgreSQL was gone; back after {time.monotonic() - began:.1f} s")
            except QueueOpsError as error:
                self.say("up", error.message)
            except (OSError, subprocess.SubprocessError, DriverError) as error:  # a full disk, for example
                self.say("up", f"PostgreSQL cannot be looked after: {error}")

        return ensure

    def _introduce(self, operator: OperatorAccount) -> None:
        """Tell the new account now, even if the web process fails later: its password is never shown again."""
        if operator.password is not None:
            password = f"{operator.password}  (shown this once; only its hash is stored)"
        else:
            password = f"as before (manage.py changepassword {operator.name} sets another)"
        for line in (
            RULE,
            f"name:     {operator.name}",
            f"password: {password}",
            RULE,
            "the address follows when it answers; Ctrl-C stops everything, running jobs get time to finish",
        ):
            self.say("up", line)

    def _announce(self) -> None:
        config = settings.QUEUEOPS
        base = f"http://{f'[{config.host}]' if ':' in config.host else config.host}:{config.port}"
        for line in (RULE, f"dashboard: {base}/", f"admin:     {base}/admin/", RULE):
            self.say("up", line)

    def _refuse_closed_directory(self) -> None:
        directory = settings.QUEUEOPS.data_dir
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "up.lock").open("a").close()
        except OSError as error:
            raise CommandError(
                f"QUEUEOPS_DATA_DIR must be a directory that may be written to; {str(directory)!r}: {error.strerror}"
            ) from error

    def _refuse_taken_ports(self, *, demo: bool) -> None:
        config = settings.QUEUEOPS
        wanted = [("QUEUEOPS_PORT", config.host, config.port)]
        if demo:
            wanted.append(("QUEUEOPS_SANDBOX_PORT", "127.0.0.1", config.sandbox_port))
        for variable, host, port in wanted:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    raise PortTaken(host=host, port=port, reason=error.strerror or "", variable=variable) from error


def _answers(host: str, port: int) -> bool:
    """Whether something listens at this address by now."""
    try:
        with socket.create_connection((host, port), timeout=0.2):
            return True
    except OSError:
        return False
