"""Kinds of jobs that leave a trace outside the database, and kinds that bring down their process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import time
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from tests.faults.app.points import end_here, ledger

POLL_SECONDS = 0.01
TIDY_SECONDS = 1.0
BOMB_BYTES = 300_000_000  # how far a memory bomb gets before the process's limit stops it
LONG = timedelta(minutes=10)


class Work(BaseModel):
    """
    What a test wants of a handler.

    `point`: where its process is killed, the first time. `gate`: what it waits at; every FAULTS_HOST has its own of
    that name. `ending`: how it ends.
    """

    seconds: float = 0.0
    point: str = ""
    gate: str = ""
    ending: str = "succeed"


class OldPayload(BaseModel):
    """Of a release that knows one field."""

    model_config = ConfigDict(extra="forbid")

    seconds: float = 0.0


class NewPayload(OldPayload):
    """Of the next, which knows one more."""

    later: str = ""


@handler(
    kind="faults.versioned",
    service="faults",
    payload=OldPayload if os.environ.get("FAULTS_RELEASE") == "old" else NewPayload,
    idempotent=True,
)
async def versioned(job: RunningJob[OldPayload]) -> Done:
    """Exist in two releases."""
    ledger().write(job.id, "effect")
    return Done()


@handler(kind="faults.write", service="faults", payload=Work, idempotent=True, timeout=LONG)
async def write(job: RunningJob[Work]) -> Done:
    """Take its time, then have its effect."""
    await asyncio.sleep(job.payload.seconds)
    return _have_effect(job)


@handler(kind="faults.write_once", service="faults", payload=Work, timeout=LONG)
async def write_once(job: RunningJob[Work]) -> Done:
    """The same, but nobody may repeat it."""
    await asyncio.sleep(job.payload.seconds)
    return _have_effect(job)


@handler(kind="faults.call", service="faults", payload=Work, idempotent=True, timeout=LONG)
async def call(job: RunningJob[Work]) -> Done:
    """Make a call: one that is cut off has begun."""
    return await _call(job)


@handler(kind="faults.call_once", service="faults", payload=Work, timeout=LONG)
async def call_once(job: RunningJob[Work]) -> Done:
    """The same, but nobody may repeat it."""
    return await _call(job)


@handler(kind="faults.write_in_thread", service="faults", payload=Work, idempotent=True, timeout=LONG)
def write_in_thread(job: RunningJob[Work]) -> Done:
    """The same in a thread."""
    time.sleep(job.payload.seconds)
    return _have_effect(job)


@handler(kind="faults.write_much", service="faults", payload=Work, idempotent=True, timeout=LONG)
async def write_much(job: RunningJob[Work]) -> Done:
    """Have its effect, and a result for the result store."""
    _have_effect(job)
    return Done({"pid": os.getpid(), "text": "x" * 5000})


@handler(kind="faults.write_at_second_try", service="faults", payload=Work, idempotent=True, retry="faults")
async def write_at_second_try(job: RunningJob[Work]) -> Done:
    """Needs a second try: a 429 would spend no attempt."""
    if job.attempt == 1:
        raise ProviderError(408, "no answer in time", code="http_408", outcome="answered")
    return _have_effect(job)


@handler(kind="faults.wait", service="faults", payload=Work, idempotent=True, retry="faults", timeout=LONG)
async def wait(job: RunningJob[Work]) -> Done:
    """Wait at a gate."""
    return await _wait(job)


@handler(kind="faults.wait_once", service="faults", payload=Work, timeout=LONG)
async def wait_once(job: RunningJob[Work]) -> Done:
    """Wait at a gate, and may not be repeated."""
    return await _wait(job)


@handler(kind="faults.wait_in_thread", service="faults", payload=Work, idempotent=True, timeout=LONG)
def wait_in_thread(job: RunningJob[Work]) -> Done:
    """Wait at a gate, in a thread."""
    ledger().write(job.id, "begin")
    while not _is_open(job):
        time.sleep(POLL_SECONDS)
    return _end(job)


@handler(kind="faults.wait_and_tidy_up", service="faults", payload=Work, idempotent=True, timeout=LONG)
async def wait_and_tidy_up(job: RunningJob[Work]) -> Done:
    """Wait at a gate, and need a while to end when interrupted."""
    try:
        return await _wait(job)
    finally:
        await asyncio.sleep(TIDY_SECONDS)


@handler(kind="faults.exit", service="poison", payload=Work, idempotent=True)
async def leave(job: RunningJob[Work]) -> None:
    """End the process without a word."""
    ledger().write(job.id, "begin")
    os._exit(1)


@handler(kind="faults.segfault", service="poison", payload=Work, idempotent=True)
def segfault(job: RunningJob[Work]) -> None:
    """Read address 0, as a faulty extension does."""
    ledger().write(job.id, "begin")
    ctypes.string_at(0)


@handler(kind="faults.memory_bomb", service="poison", payload=Work, idempotent=True)
def memory_bomb(job: RunningJob[Work]) -> None:
    """Grow until there is no memory left; the limit is the process's own, so that the machine survives."""
    ledger().write(job.id, "begin")
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - no file of ours
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BOMB_BYTES, resource.RLIM_INFINITY))
    hoard = []
    while True:
        hoard.append(b"x" * 10_000_000)


@handler(kind="faults.spin", service="poison", payload=Work, idempotent=True)
async def spin(job: RunningJob[Work]) -> None:
    """Block the event loop for ever; with a gate only once."""
    ledger().write(job.id, "begin")
    spins = not job.payload.gate or ledger().first_time(f"spin-{job.id}")
    while spins:
        pass


@handler(kind="faults.hold", service="poison", payload=Work, idempotent=True, retry="faults", timeout=LONG)
async def hold(job: RunningJob[Work]) -> Done:
    """Hold the event loop until the gate is open."""
    ledger().write(job.id, "begin")
    while not _is_open(job):
        time.sleep(POLL_SECONDS)  # noqa: ASYNC251 - what the test is about
    return _end(job)


@handler(kind="faults.block", service="poison", payload=Work, idempotent=True)
async def block(job: RunningJob[Work]) -> None:
    """Block the event loop for some seconds."""
    time.sleep(job.payload.seconds)  # noqa: ASYNC251 - that is what it is for


@handler(kind="faults.spin_in_thread", service="poison", payload=Work, timeout=timedelta(seconds=0.3))
def spin_in_thread(job: RunningJob[Work]) -> None:
    """Never end, and never look whether it should."""
    ledger().write(job.id, "begin")
    while True:
        time.sleep(0.01)


def _is_open(job: RunningJob[Work]) -> bool:
    return ledger().is_open(job.payload.gate + os.environ.get("FAULTS_HOST", ""))


async def _wait(job: RunningJob[Work]) -> Done:
    ledger().write(job.id, "begin")
    while not _is_open(job):  # noqa: ASYNC110 - a gate is opened by another process
        await asyncio.sleep(POLL_SECONDS)
    return _end(job)


async def _call(job: RunningJob[Work]) -> Done:
    ledger().write(job.id, "begin")
    await asyncio.sleep(job.payload.seconds)
    ledger().write(job.id, "end")
    return Done({"pid": os.getpid()})


def _end(job: RunningJob[Work]) -> Done:
    job.progress(90, "nearly done")
    ledger().write(job.id, "end")
    match job.payload.ending:
        case "retry":
            raise ProviderError(408, "no answer in time", code="http_408", outcome="answered")
        case "fail":
            raise ProviderError(400, "malformed", code="http_400", outcome="answered")
    return Done({"pid": os.getpid()})


def _have_effect(job: RunningJob[Any]) -> Done:
    end_here("before_effect", job.payload.point, job.id)
    ledger().write(job.id, "effect")
    end_here("after_effect", job.payload.point, job.id)
    return Done({"pid": os.getpid()})


@handler(kind="faults.told_of_batch", service="faults", payload=Work, idempotent=True)
async def told_of_batch(job: RunningJob[Work]) -> Done:
    """Be a batch's callback, and keep what it was told."""
    assert job.ended_batch is not None
    ledger().write(job.id, "effect")
    return Done(job.ended_batch.as_dict())
