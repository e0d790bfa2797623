"""
Signs of life of processes that one process forked, in memory that they share.

They use the machine's monotonic clock and no database. A database that was restored, is full or hangs therefore makes
no process look dead.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psutil

PLACES = 256
_NUMBERS = 8  # numbers of eight bytes in a place; two identifiers of 16 bytes follow them
_PID, _STARTED, _BEAT, _WORKED, _TROUBLE, _IN_STEP = range(6)
_PLACE_BYTES = 8 * _NUMBERS + 32
_STRIDE = _PLACE_BYTES // 8
_START = 19  # index of a process's start, in ticks, after its name in /proc/PID/stat


class Pulse(NamedTuple):
    """
    The last signs of life of one process.

    Attributes:
        started_at: When the process started, as `start_of` tells it from a later process with the same pid.
        owner: The executor that the process hosts.
        beat_at, worked_at: When its pump and its handlers' loop last gave a sign; seconds of the monotonic clock.
        is_in_trouble: The pump's last use of the database failed, so the pump may pause without being stuck.
        at_work: The job whose handler had the loop to itself at the last sign; None: no handler had.
    """

    pid: int
    started_at: float
    owner: UUID
    beat_at: float
    worked_at: float
    is_in_trouble: bool
    at_work: UUID | None

    @property
    def is_alive(self) -> bool:
        return is_running(self.pid, self.started_at)


class Pulses:
    """
    A table with a place for each process; make it before they are forked.

    A process that needs a place takes a free one, and checks at each beat whether the place is still its own. If two
    processes take the same place at once, one has none until its next beat, and is not watched meanwhile.
    """

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, PLACES * _PLACE_BYTES))
        self._bytes, self._numbers = memory, memory.cast("d")

    def join(self, owner: UUID, *, pid: int | None = None) -> OwnPulse:
        """Give signs of life from now on, for this process unless `pid` names another."""
        return OwnPulse(self, owner, pid or os.getpid())

    def read(self) -> list[Pulse]:
        """Return the pulses of all processes that have not left, alive or not."""
        found = (self._read(place) for place in range(PLACES))
        return [pulse for pulse in found if pulse]

    def forget(self, pulse: Pulse) -> None:
        """Free the place of a process that has ended."""
        for place in range(PLACES):
            if self.is_of(place, pulse.pid, pulse.owner):
                self.set(place, _PID, 0)

    def take(self, pid: int, owner: UUID, started_at: float) -> int | None:
        """
        Fill in a place and return it; None: no place is free. The places of dead processes are taken last, because
        their deaths may not have been reported yet.
        """
        places = [(pid + step) % PLACES for step in range(PLACES)]
        free = next((place for place in places if not self.get(place, _PID)), None)
        if free is None:
            free = next((place for place in places if (pulse := self._read(place)) and not pulse.is_alive), None)
        if free is None:
            return None
        self.set(free, _PID, 0)
        now = time.monotonic()
        for number, value in ((_STARTED, started_at), (_BEAT, now), (_WORKED, now), (_TROUBLE, 0), (_IN_STEP, 0)):
            self.set(free, number, value)
        at = free * _PLACE_BYTES + 8 * _NUMBERS
        self._bytes[at : at + 16] = owner.bytes
        self.set(free, _PID, pid)  # last: a reader that sees the pid sees the rest, too
        return free

    def is_of(self, place: int, pid: int, owner: UUID) -> bool:
        return self.get(place, _PID) == pid and self._identifier(place, 0) == owner.bytes

    def get(self, place: int, number: int) -> float:
        return float(self._numbers[place * _STRIDE + number])

    def set(self, place: int, number: int, value: float) -> None:
        self._numbers[place * _STRIDE + number] = value  # eight bytes at once: no reader sees half a value

    def begin_step(self, place: int, job: bytes) -> None:
        at = place * _PLACE_BYTES + 8 * _NUMBERS + 16
        self._bytes[at : at + 16] = job
        self.set(place, _IN_STEP, 1)

    def end_step(self, place: int) -> None:
        self.set(place, _IN_STEP, 0)

    def _identifier(self, place: int, number: int) -> bytes:
        at = place * _PLACE_BYTES + 8 * _NUMBERS + 16 * number
        return bytes(self._bytes[at : at + 16])

    def _read(self, place: int) -> Pulse | None:
        pid = int(self.get(place, _PID))
        if not pid:
            return None
        pulse = Pulse(
            pid=pid,
            started_at=self.get(place, _STARTED),
            owner=UUID(bytes=self._identifier(place, 0)),
            beat_at=self.get(place, _BEAT),
            worked_at=self.get(place, _WORKED),
            is_in_trouble=bool(self.get(place, _TROUBLE)),
            at_work=UUID(bytes=self._identifier(place, 1)) if self.get(place, _IN_STEP) else None,
        )
        return pulse if self.is_of(place, pid, pulse.owner) else None  # another process has taken the place


class OwnPulse:
    """
    One process's own signs of life.

    The pump's thread calls `beat`, `tell_trouble` and `leave`; the handlers' loop calls the other methods.
    """

    def __init__(self, pulses: Pulses, owner: UUID, pid: int) -> None:
        self._pulses = pulses
        self._owner = owner
        self._pid = pid
        self._started_at = start_of(pid)
        self._place: int | None = None
        self._has_left = False
        self._lock = threading.Lock()

    def beat(self, at: float | None = None) -> None:
        """Note that the pump goes on. `at`: seconds of the monotonic clock; None: now."""
        place = self._own_place()
        if place is not None:
            self._pulses.set(place, _BEAT, time.monotonic() if at is None else at)

    def tick(self, at: float) -> None:
        """Note that the handlers' loop goes on."""
        place = self._own_place()
        if place is not None:
            self._pulses.set(place, _WORKED, at)

    def tell_trouble(self, *, is_in_trouble: bool) -> None:
        """Note whether the pump's last use of the database failed."""
        place = self._own_place()
        if place is not None:
            self._pulses.set(place, _TROUBLE, is_in_trouble)

    def begin_step(self, job: UUID) -> None:
        """Note that a job's handler has the loop, and so the process, to itself from now on."""
        if self._place is not None:
            self._pulses.begin_step(self._place, job.bytes)

    def end_step(self) -> None:
        if self._place is not None:
            self._pulses.end_step(self._place)

    def leave(self) -> None:
        """Free the place for good: the process ends in order, and must not be taken for a crashed one."""
        with self._lock:
            self._has_left = True
            if self._place is not None and self._pulses.is_of(self._place, self._pid, self._owner):
                self._pulses.set(self._place, _PID, 0)
            self._place = None

    def _own_place(self) -> int | None:
        with self._lock:
            if self._has_left:
                return None
            if self._place is None or not self._pulses.is_of(self._place, self._pid, self._owner):
                self._place = self._pulses.take(self._pid, self._owner, self._started_at)
            return self._place


def start_of(pid: int) -> float:
    """
    Return when a process started, in seconds since the machine's boot.

    psutil counts from 1970, so a system clock that is set would give each living process another start.

    Raises:
        psutil.NoSuchProcess
    """
    if sys.platform != "linux":
        return psutil.Process(pid).create_time() - psutil.boot_time()
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return int(told.rpartition(b")")[2].split()[_START]) / os.sysconf("SC_CLK_TCK")


def age_of(pid: int) -> float:
    """
    Return how many seconds ago a process started; a system clock that is set changes nothing.

    Raises:
        psutil.NoSuchProcess
    """
    if sys.platform != "linux":
        return time.time() - psutil.Process(pid).create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_of(pid)


def is_running(pid: int, started_at: float) -> bool:
    """
    Whether the process that has this number and started at this time, as `start_of` returns it, runs on this host.

    A later process with the same number does not count, nor does a dead process that its parent has not reaped yet.
    """
    try:
        return abs(start_of(pid) - started_at) < 1 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
