"""Job kinds that do nothing, so that a benchmark measures the queue and not a handler."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any

from pydantic import BaseModel, Field

from bench.harness.raw_loop import result_of
from jobs.handlers.registry import Done, RunningJob, handler

STAMP = struct.Struct("!qq")  # the job's number, and CLOCK_MONOTONIC in ns, which all processes of a machine share

PAYLOAD_BYTES, RESULT_BYTES = 1_000, 500  # of a job of kind bench.echo

_sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


class Nothing(BaseModel):
    """The payload of a no-op: whatever is given."""

    model_config = {"extra": "allow"}


class Stamp(BaseModel):
    number: int
    port: int = Field(gt=0, lt=65536, description="UDP port on 127.0.0.1 that is told the time of the start.")


class Hold(BaseModel):
    seconds: float = Field(ge=0, le=50)


@handler(kind="bench.noop", service="bench", payload=Nothing, idempotent=True)
async def noop(job: RunningJob[Nothing]) -> None:
    """Do nothing."""


@handler(kind="bench.echo", service="bench", payload=Nothing, idempotent=True)
async def echo(job: RunningJob[Any]) -> Done:
    """Return a result of RESULT_BYTES."""
    return Done(result_of(RESULT_BYTES))


@handler(kind="bench.stamp", service="bench", payload=Stamp, idempotent=True)
async def stamp(job: RunningJob[Stamp]) -> None:
    """Send the time at which the handler was called."""
    now = time.monotonic_ns()
    _sender.sendto(STAMP.pack(job.payload.number, now), ("127.0.0.1", job.payload.port))


@handler(kind="bench.hold", service="bench", payload=Hold, idempotent=True)
async def hold(job: RunningJob[Any]) -> None:
    """Occupy a slot."""
    await asyncio.sleep(job.payload.seconds)
