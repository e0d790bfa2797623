"""Signs of life in shared memory: who lives, who is stuck and who is gone, without a database."""

from __future__ import annotations

import os
import sys
import time
from uuid import uuid4

import psutil
import pytest

from queueops.core.processes import pulses
from queueops.core.processes.pulses import Pulses

NOBODY = 2**31 - 1  # no process has this number


def test_each_process_is_read_with_what_it_told_last_until_it_leaves():
    table, ours, job = Pulses(), uuid4(), uuid4()
    assert table.read() == []
    own = table.join(ours)
    own.beat(5.0)
    own.tick(7.0)
    own.begin_step(job)
    own.tell_trouble(is_in_trouble=True)
    [pulse] = table.read()
    assert pulse.is_alive
    assert (pulse.pid, pulse.owner, pulse.beat_at, pulse.worked_at) == (os.getpid(), ours, 5.0, 7.0)
    assert (pulse.at_work, pulse.is_in_trouble) == (job, True)
    own.end_step()
    own.beat()
    own.tell_trouble(is_in_trouble=False)
    [pulse] = table.read()
    assert (pulse.at_work, pulse.is_in_trouble) == (None, False)
    assert 0 <= time.monotonic() - pulse.beat_at < 60
    own.leave()
    own.beat()
    own.tick(8.0)
    assert table.read() == [], "it came back"


def test_one_whose_place_was_taken_by_another_has_a_place_again_after_its_next_beat():
    table = Pulses()
    first, second = table.join(uuid4()), table.join(uuid4(), pid=os.getppid())
    first.beat()
    [before] = table.read()
    table.forget(before)  # as if another had taken it at the same moment
    table.take(os.getppid(), uuid4(), 0.0)
    second.beat()
    assert {pulse.pid for pulse in table.read()} == {os.getppid()}
    first.beat()
    assert sorted(pulse.pid for pulse in table.read()) == sorted([os.getpid(), os.getppid(), os.getppid()])


def test_a_process_that_is_gone_keeps_its_place_until_it_is_forgotten_or_no_other_is_free(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(pulses, "PLACES", 3)
    table, dead = Pulses(), uuid4()
    table.take(NOBODY, dead, 1.0)
    table.take(os.getpid(), uuid4(), pulses.start_of(os.getpid()))
    assert {pulse.owner: pulse.is_alive for pulse in table.read()}[dead] is False
    heirs = [table.join(uuid4()) for _ in range(3)]
    heirs[0].beat()
    assert dead in {pulse.owner for pulse in table.read()}, "nobody has told of it"
    heirs[1].beat()
    assert dead not in {pulse.owner for pulse in table.read()}
    heirs[2].beat()
    heirs[2].tell_trouble(is_in_trouble=True)
    assert len(table.read()) == 3, "there is no place, and nothing breaks"
    table.forget(table.read()[0])
    assert len(table.read()) == 2


def test_a_process_number_that_another_process_has_now_is_not_alive():
    assert pulses.is_running(os.getpid(), pulses.start_of(os.getpid()))
    assert not pulses.is_running(os.getpid(), pulses.start_of(os.getpid()) - 60)
    assert not pulses.is_running(NOBODY, 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere psutil tells when a process started")
def test_a_system_clock_that_is_set_makes_nobody_look_dead(monkeypatch: pytest.MonkeyPatch):
    table = Pulses()
    table.join(uuid4()).beat()
    before = psutil.boot_time()
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: before + 5)
    assert abs(psutil.Process().create_time() - before - 5 - pulses.start_of(os.getpid())) < 1, "it looks moved"
    assert table.read()[0].is_alive
