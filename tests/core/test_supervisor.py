"""The supervisor with real children: what it starts, it stops, in order."""

import signal
import sys
import threading

import pytest

from queueops.core.processes.supervisor import ChildSpec, Supervisor
from tests.support.processes import started, wait_for

CHILD = """
import signal, sys, time
def stop(*_):
    time.sleep(0.2)
    print("ended")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready")
while True:
    time.sleep(1)
"""


def stopping_child(name: str) -> ChildSpec:
    return ChildSpec(name, [sys.executable, "-u", "-c", CHILD])


def test_children_stop_one_after_the_other_in_reverse_order():
    said: list[tuple[str, str]] = []
    supervisor = Supervisor(
        [stopping_child("first"), stopping_child("second"), stopping_child("third")],
        environ={},
        say=lambda name, line: said.append((name, line)),
    )

    def stop_when_ready() -> None:
        wait_for(lambda: len([line for _, line in said if line == "ready"]) == 3)
        supervisor.request_stop()

    thread = threading.Thread(target=stop_when_ready)
    supervisor.run(on_started=thread.start)
    thread.join()
    assert [name for name, line in said if line == "ended"] == ["third", "second", "first"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_children_too(signum):
    script = (
        "import sys\n"
        "from queueops.core.processes.supervisor import ChildSpec, Supervisor\n"
        f"child = ChildSpec('child', [sys.executable, '-u', '-c', {CHILD!r}])\n"
        "Supervisor([child], environ={}, say=lambda name, line: print(name, line, flush=True)).run()\n"
    )
    with started(sys.executable, "-c", script) as process:
        process.wait_for_output("child ready")
        assert process.stop(signum) == 0
        assert "child ended" in process.output


def test_a_child_that_cannot_be_started_is_tried_again_and_takes_no_other_with_it(tmp_path):
    said: list[tuple[str, str]] = []
    program = tmp_path / "late"
    supervisor = Supervisor(
        [stopping_child("first"), ChildSpec("late", [str(program)])],
        environ={},
        say=lambda name, line: said.append((name, line)),
    )

    def make_it_startable() -> None:
        wait_for(lambda: any("cannot be started" in line for _, line in said))
        program.with_name("new").write_text("#!/bin/sh\necho here\n")
        program.with_name("new").chmod(0o700)
        program.with_name("new").rename(program)
        wait_for(lambda: ("late", "here") in said)
        supervisor.request_stop()

    thread = threading.Thread(target=make_it_startable)
    supervisor.run(on_started=thread.start)
    thread.join()
    assert ("first", "ended") in said


def test_a_signal_at_any_moment_stops_the_children():
    script = (
        "import signal, sys\n"
        "from queueops.core.processes.supervisor import ChildSpec, Supervisor\n"
        "def trace(frame, event, argument):\n"
        "    if (frame.f_code.co_name, frame.f_globals['__name__']) == ('wait', 'threading'):\n"
        "        signal.raise_signal(signal.SIGTERM)\n"  # its caller holds a lock
        f"child = ChildSpec('child', [sys.executable, '-u', '-c', {CHILD!r}])\n"
        "running = Supervisor([child], environ={}, say=lambda name, line: print(name, line, flush=True))\n"
        "running.run(on_started=lambda: sys.settrace(trace))\n"
    )
    with started(sys.executable, "-c", script) as process:
        process.wait_for_output("child ready")
        assert process.stop(signal.SIGTERM) == 0
