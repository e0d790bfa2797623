"""Processes that are forked from the test's own: a start of Django for each kill would leave little to kill."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from django.db import connections

fork = multiprocessing.get_context("fork")


def forked(work: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Begin it in a process of its own, which ends with it."""
    connections.close_all()  # the child must not speak on the parent's
    process = fork.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def killed(work: Callable[..., object], *arguments: Any) -> None:
    """Carry it out in a process of its own, until that kills itself."""
    process = forked(work, *arguments)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode}"
