"""Real processes for tests: started against the test's database, waited for, stopped by pid."""

import contextlib
import functools
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

from django.db import connection

from tests.support.warm_parent import is_like

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


class Program(Protocol):
    """What tests use of subprocess.Popen."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class RunningProcess:
    """A started process with its own session; `output` is what it has printed so far."""

    def __init__(self, process: Program, log: Path) -> None:
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


class Forked:
    """A child of the warm parent, which asks after it as its parent would."""

    def __init__(self, parent: "WarmParent", pid: int) -> None:
        self._parent = parent
        self.pid = pid
        self.returncode: int | None = None
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        with self._asking:
            if self.returncode is None:
                self.returncode = self._parent.ask({"do": "poll", "pid": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (ended := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(0.02)
        return ended

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmParent:
    """The process that forks others, started when the first is wanted; see tests.support.warm_parent."""

    def __init__(self) -> None:
        self.environ = _environ({})
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.support.warm_parent"),
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._read() == self._process.pid

    def start(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> Forked:
        from tests.support.tiers import watch  # late: it is a plugin, which pytest wants to import itself

        watch.hear_process("warm parent", (sys.executable, arguments))
        order = {"do": "start", "arguments": arguments, "environ": environ, "log": str(log)}
        pid = self.ask(order)
        assert pid, "the warm parent has forked nothing"
        return Forked(self, pid)

    def ask(self, order: Mapping[str, object]) -> int | None:
        assert self._process.stdin
        with self._asking:
            self._process.stdin.write(f"{json.dumps(order)}\n")
            self._process.stdin.flush()
            return self._read()

    def _read(self) -> int | None:
        assert self._process.stdout
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer


@functools.cache
def warm_parent() -> WarmParent:
    """That of this test process; it ends with it."""
    return WarmParent()


def _environ(added: Mapping[str, str]) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    return {**clean, "PYTHONUNBUFFERED": "1", **added}


@contextlib.contextmanager
def started(*command: str, environ: Mapping[str, str] | None = None) -> Iterator[RunningProcess]:
    """Start a command in the checkout; afterwards it and whatever it left in its session are killed."""

    def start(log: Path) -> Program:
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env=_environ(environ or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    with _running(start) as process:
        yield process


@contextlib.contextmanager
def python(*arguments: str, environ: Mapping[str, str] | None = None, cold: bool = False) -> Iterator[RunningProcess]:
    """
    Start a Python program, by the name of its file or as `-m module`, as `started` does, but forked.

    Args:
        cold: It begins with nothing imported, for tests whose subject that is.
    """
    given = _environ(environ or {})
    if cold or not is_like(given, warm_parent().environ):
        with started(sys.executable, *arguments, environ=environ) as process:
            yield process
        return

    def start(log: Path) -> Program:
        log.touch()
        return warm_parent().start(arguments, given, log)

    with _running(start) as process:
        yield process


@contextlib.contextmanager
def _running(start: Callable[[Path], Program]) -> Iterator[RunningProcess]:
    with tempfile.TemporaryDirectory(prefix="queueops-process-") as directory:
        log = Path(directory) / "output"
        process = start(log)
        try:
            yield RunningProcess(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def manage(
    *arguments: str, environ: Mapping[str, str] | None = None, cold: bool = False
) -> contextlib.AbstractContextManager[RunningProcess]:
    """
    Start `manage.py <arguments>` against the test's own database; see `python`.

    The test must commit (`transaction=True`), or the process sees nothing of it.
    """
    return python("manage.py", *arguments, environ={"DATABASE_URL": database_url(), **(environ or {})}, cold=cold)
