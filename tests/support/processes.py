"""Real processes for tests: started against the test's database, waited for, stopped by pid."""

import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
Result = TypeVar("Result")
# Below those that the kernel hands out: from 32,768 on Linux, from 49,152 on macOS.
FIRST_PORT, LAST_PORT = 16_000, 32_000


def _ports() -> Iterator[int]:
    """All in turn, and again; two test processes begin at places of their own."""
    count = LAST_PORT - FIRST_PORT
    begin = secrets.randbelow(count)
    for number in itertools.count():
        yield FIRST_PORT + (begin + number) % count


_PORTS = _ports()


def wait_for(condition: Callable[[], Result], *, seconds: float = 60.0, what: str = "the condition") -> Result:
    """
    Return the condition's first true value; fail with `what` at the deadline.

    It is looked at once more after the deadline: a machine that stood still until then let nothing come about.
    """
    deadline = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() > deadline
        if value := condition():
            return value
        if is_last:
            raise AssertionError(f"{what} did not come about within {seconds:g} s")
        time.sleep(0.02)


def free_port() -> int:
    """
    Return a loopback port that nothing listens on, and that stays so until the caller uses it.

    None of those that the kernel hands out: the next test server of the other worker would be given it, while the
    process that is to listen there still starts or is away.
    """
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def database_url() -> str:
    """Return the URL of the database that this test is connected to, for DATABASE_URL of a process."""
    parameters = connection.get_connection_params()
    secret = f":{quote(parameters['password'], safe='')}" if parameters.get("password") else ""
    user = quote(parameters.get("user") or "", safe="")
    query = f"?host={quote(parameters.get('host') or 'localhost', safe='')}"
    if parameters.get("port"):
        query += f"&port={parameters['port']}"
    return f"postgresql://{user}{secret}@/{parameters['dbname']}{query}"


class RunningProcess:
    """A started process with its own session; `output` is what it has printed so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def wait_for_output(self, text: str, *, seconds: float = 60.0) -> None:
        def shown() -> bool:
            if not self.runs and text not in self.output:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.output}")
            return text in self.output

        try:
            wait_for(shown, seconds=seconds, what=repr(text))
        except AssertionError as error:
            raise AssertionError(f"{error}; the output was:\n{self.output}") from None

    def stop(self, signum: signal.Signals = signal.SIGTERM, *, seconds: float = 60.0) -> int:
        """Signal this process alone and return its exit code."""
        if self.runs:
            self.send(signum)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not stop within {seconds:g} s:\n{self.output}") from None


@contextlib.contextmanager
def started(*command: str, environ: Mapping[str, str] | None = None) -> Iterator[RunningProcess]:
    """Start a command in the checkout; afterwards it and whatever it left in its session are killed."""
    clean = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    with tempfile.TemporaryDirectory(prefix="queueops-process-") as directory:
        log = Path(directory) / "output"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**clean, "PYTHONUNBUFFERED": "1", **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield RunningProcess(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def manage(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[RunningProcess]:
    """
    Start `manage.py <arguments>` against the test's own database.

    The test must commit (`transaction=True`), or the process sees nothing of it.
    """
    return started(
        sys.executable,
        "manage.py",
        *arguments,
        environ={"DATABASE_URL": database_url(), **(environ or {})},
    )
