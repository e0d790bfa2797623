"""Processes that end with the process that started them, however that ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(parent: int, signum: signal.Signals = signal.SIGTERM) -> None:
    """
    Have the kernel send `signum` to this process when its parent is gone; at once, if it is gone already.

    Call this in the child, after the fork and after any change of user, which cancels the request. The kernel watches
    the thread that forked: fork from a thread that lives as long as its process. Only Linux can do this; elsewhere
    executors check their parent themselves.

    Args:
        parent: The pid that the forking process passed on: by now this process may have another parent.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)
