"""
A small supervisor for one machine: starts children, restarts what crashes, stops in order.

A child is signalled by its own pid, never with its process group: only django-q2's master may get the SIGTERM. A worker
that got it would die before its executor has drained.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

from .parent import end_with_parent
from .stop_signals import handle_stop

Say = Callable[[str, str], None]

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
STEADY_SECONDS = 30.0  # a child that ran so long starts over with the first back-off


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """
    Attributes:
        stop_seconds: How long the child may take after SIGTERM before it is killed.
        once: It does its work and ends; it is not started again.
    """

    name: str
    command: Sequence[str]
    stop_seconds: float = 10.0
    once: bool = False


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[str] | None = None
    started_at: float = 0.0
    restart_at: float | None = 0.0
    backoff: float = FIRST_BACKOFF_SECONDS
    reader: threading.Thread | None = field(default=None, repr=False)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """
    Runs children until a stop is asked for.

    Args:
        specs: In order of start; they stop in reverse order.
        say: Gets (child's name, line) for every line a child prints and for what happens to it.
        each_second: Called about once a second until a stop is asked for, to watch other things.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        environ: Mapping[str, str],
        say: Say,
        each_second: Callable[[], None] = lambda: None,
    ) -> None:
        self._children = [_Child(spec) for spec in specs]
        self._environ = dict(environ)
        self._say = say
        self._each_second = each_second
        self._stop_requests = 0

    def request_stop(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """
        Ask for a clean stop; the second request kills what has not stopped yet.

        Takes no lock: a signal that interrupted the holder of that lock would wait for itself.
        """
        self._stop_requests += 1

    def run(self, *, on_started: Callable[[], None] = lambda: None) -> None:
        """Start the children, and return when all have stopped."""
        previous = handle_stop(self.request_stop)
        try:
            self._start_due(time.monotonic())
            on_started()
            next_second = time.monotonic() + 1
            while not self._stop_requests:
                now = time.monotonic()
                self._note_exits(now)
                self._start_due(now)
                if now >= next_second:
                    next_second = now + 1
                    self._each_second()
                time.sleep(0.1)
        finally:
            self._stop_all()
            for name, handler in previous.items():
                signal.signal(name, handler)

    def _start_due(self, now: float) -> None:
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= now:
                child.restart_at = None
                try:
                    self._start(child, now)
                except (OSError, subprocess.SubprocessError) as error:  # the machine may be out of memory for a while
                    self._start_later(child, now, f"cannot be started: {error}")

    def _start(self, child: _Child, now: float) -> None:
        child.started_at = now
        child.process = subprocess.Popen(
            child.spec.command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Its own session, so that Ctrl-C in the terminal reaches only the supervisor.
            start_new_session=True,
            # end_with_parent calls only code that was loaded before the fork.
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509
        )
        child.reader = threading.Thread(target=self._relay, args=(child.spec.name, child.process))
        child.reader.daemon = True
        child.reader.start()

    def _start_later(self, child: _Child, now: float, why: str) -> None:
        child.restart_at = now + child.backoff
        self._say(child.spec.name, f"{why}; starts again in {child.backoff:g} s")
        child.backoff = min(child.backoff * 2, MAX_BACKOFF_SECONDS)

    def _relay(self, name: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self._say(name, line.rstrip("\n"))

    def _note_exits(self, now: float) -> None:
        for child in self._children:
            if child.process is None or child.runs or child.restart_at is not None or child.spec.once:
                continue
            if now - child.started_at >= STEADY_SECONDS:
                child.backoff = FIRST_BACKOFF_SECONDS
            self._start_later(child, now, f"ended with {child.process.returncode}")

    def _stop_all(self) -> None:
        """Stop the children one by one, the last first: the first children serve the others while these drain."""
        running = [child for child in reversed(self._children) if child.runs]
        if running:
            self._say("up", "stopping: " + ", ".join(child.spec.name for child in running))
        for child in running:
            self._signal(child, signal.SIGTERM)
            asked = time.monotonic()
            while child.runs:
                if self._stop_requests > 1 or time.monotonic() - asked > child.spec.stop_seconds:
                    self._kill(child)
                else:
                    time.sleep(0.05)
        for child in self._children:
            if child.reader is not None:
                child.reader.join(timeout=2)

    def _kill(self, child: _Child) -> None:
        """Kill a child that did not stop, and its session: its own children would otherwise be left behind."""
        if child.process is None:
            return
        self._say(child.spec.name, "did not stop in time; killed")
        try:
            os.killpg(child.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        child.process.wait()

    @staticmethod
    def _signal(child: _Child, signum: signal.Signals) -> None:
        if child.process is not None and child.runs:
            child.process.send_signal(signum)


def python_command(*arguments: str) -> list[str]:
    """Return a command run by this interpreter, unbuffered, so that its lines arrive as they are written."""
    return [sys.executable, "-u", *arguments]
