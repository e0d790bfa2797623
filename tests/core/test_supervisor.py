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
