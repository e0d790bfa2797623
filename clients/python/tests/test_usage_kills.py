"""A process killed -9 at each point of a use and of a flush, and the next start."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from usage_server import UsageServer
from usage_trackers import KINDS, USER, Tracker

SRC = Path(__file__).resolve().parents[1] / "src"
PROGRAM = Path(__file__).with_name("support") / "usage_killed.py"

# Where it dies; what its first use left; whether the provider's call had been made.
POINTS = {
    "before_intent": (None, False),
    "after_intent": ("intent", False),
    "after_call": ("intent", True),
    "before_commit": ("intent", True),
    "after_commit": ("ready", True),
    "after_use": ("ready", True),
    "before_send": ("ready", True),
    "after_answer": ("ready", True),
    "before_settle": ("ready", True),
    "after_settle": ("sent", True),
}


def killed(kind: str, url: str, path: Path, point: str) -> None:
    command = [sys.executable, str(PROGRAM), str(SRC), kind, url, str(path), USER, point]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_at_any_point_the_next_start_counts_each_call_once(server, tmp_path, kind, point):
    allowance = UsageServer()
    server.answer = allowance.answer
    path = tmp_path / "outbox.sqlite3"
    killed(kind, server.url, path, point)
    left, was_called = POINTS[point]
    tracker = Tracker(kind, server.url, path)
    report = tracker.report()
    assert len(report.intents) == (left == "intent")
    assert report.pending == (left == "ready")
    assert report.in_progress == 0
    for intent in report.intents:
        assert (intent.estimate, intent.service) == (50, "gemini")
        assert tracker.resolve(intent.event_id, tokens=30 if was_called else None)
    tracker.flush()
    assert tracker.report().size == 0
    assert allowance.used(USER) == (30 if was_called else 0)
    assert len(allowance.events) == was_called
    tracker.close()
    assert not list(tmp_path.glob("*.owner"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_living_process_sees_what_a_killed_neighbour_left_and_sends_it(server, tmp_path):
    allowance = UsageServer()
    server.answer = allowance.answer
    path = tmp_path / "outbox.sqlite3"
    tracker = Tracker("sync", server.url, path)
    killed("sync", server.url, path, "before_send")  # it had claimed the row
    assert tracker.flush().sent == 1
    killed("sync", server.url, path, "after_call")
    assert [intent.estimate for intent in tracker.report().intents] == [50]
    tracker.close()
