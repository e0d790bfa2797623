"""Waiting until a socket or pipe can be read, whatever its number."""

from __future__ import annotations

import select
from collections.abc import Iterable


def wait_readable(files: Iterable[int], *, seconds: float) -> set[int]:
    """
    Return which of these descriptors can be read or have ended, after at most `seconds`.

    select() would refuse a number above 1023, which a worker with many connections soon has.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(seconds * 1000)}
