"""The signals that ask a process to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

# SIGHUP comes when the terminal is closed, and from supervisors that send it with SIGTERM.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_stop(handler: Callable[..., Any]) -> dict[signal.Signals, Any]:
    """
    Have the main thread call `handler` at each signal that asks this process to stop.

    Under nohup, SIGHUP stays ignored.

    Returns:
        The handlers before, by signal.
    """
    heeded = [name for name in STOP_SIGNALS if name != signal.SIGHUP or signal.getsignal(name) != signal.SIG_IGN]
    return {name: signal.signal(name, handler) for name in heeded}
