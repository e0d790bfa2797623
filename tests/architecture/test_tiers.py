"""A test is marked by what it uses, and one that starts what its marks do not tell fails."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.services.claim.claim import claim_jobs
from jobs.services.finish.finish import record_outcomes
from queueops.core.embedded.cluster import EmbeddedServer
from tests.support import processes, tiers
from tests.support.plans import explain_file
from tests.support.racing import run_together

REACH = tiers.Reach(tiers.TESTS, tiers.STARTERS)


def helper():
    return subprocess.run(["true"], check=True)


@contextlib.contextmanager
def server() -> Iterator[None]:
    with EmbeddedServer(processes.ROOT).use():
        yield


class Client:
    def ask(self):
        return [helper() for _ in range(2)]


def by_itself():
    subprocess.Popen(["true"])


def by_another_of_the_tests():
    with server():
        pass


def by_a_module():
    with processes.manage("up"):
        pass


def by_a_class():
    return Client()


def by_what_it_holds():
    run = helper

    def inner():
        return run()

    return inner


def by_a_race():
    run_together(2, lambda number: number)


def by_a_plan():
    return explain_file("jobs", "choose_jobs")


def by_nothing():
    return sys.platform, subprocess.PIPE


def test_what_a_test_reaches_marks_it():
    found = {
        one: set(REACH.of(one))
        for one in (
            by_itself,
            by_another_of_the_tests,
            by_a_module,
            by_a_class,
            by_what_it_holds(),
            functools.partial(by_itself),
            by_a_race,
            by_nothing,
        )
    }
    assert [*found.values()] == [{"process"}] * 6 + [{"concurrency"}, set()]


def carry_out(body, *marks: str) -> Any:
    """As pytest does with a test of these marks."""
    item: Any = SimpleNamespace(iter_markers=lambda: [SimpleNamespace(name=name) for name in marks], user_properties=[])
    outer, call = tiers.watch.started, tiers.pytest_runtest_call(item)
    try:
        next(call)
        body()
        with pytest.raises(StopIteration):
            next(call)
    finally:
        tiers.watch.started = outer
    return item.user_properties


def start_program():
    subprocess.Popen(["true"]).wait()


def start_program_by_the_system():
    os.waitpid(os.posix_spawnp("true", ["true"], os.environ), 0)


def fork():
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)


def start_warm():
    with processes.manage("version") as started:
        started.process.wait(60)


def start_thread():
    thread = threading.Thread(target=by_nothing)
    thread.start()
    thread.join()


def compute():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass


def test_a_test_that_starts_what_its_marks_do_not_tell_fails():
    for body in (start_program, start_program_by_the_system, fork, start_warm, start_thread):
        mark = "concurrency" if body is start_thread else "process"
        carry_out(body, mark)
        with pytest.raises(pytest.fail.Exception, match="without the mark it starts"):
            carry_out(body)


def test_a_test_that_computes_too_long_fails_unless_it_is_a_matrix():
    assert dict(carry_out(compute))["cpu"] >= 0.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "CPU_SECONDS", 0.05)
        patch.setattr(tiers, "_slowness", lambda: 1.0)
        carry_out(compute, "matrix")
        with pytest.raises(pytest.fail.Exception, match="of CPU"):
            carry_out(compute)


def test_every_mark_of_a_tier_stands_where_pytest_reads_it(pytestconfig):
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert {need for need, _ in tiers.STARTERS.values()} | tiers.HEAVY | {"sql"} <= known


def test_which_statements_a_test_comes_to_is_read_of_the_product():
    """Of each some tests run on PostgreSQL 15, too."""
    reach = tiers.Statements((*tiers.TESTS, *tiers.PRODUCT), tiers.READS_A_PLAN)
    assert "choose_jobs" in reach.of(claim_jobs)
    assert {"transition_jobs", "renew_leases"} & reach.of(record_outcomes) == {"transition_jobs"}
    assert tiers.PLAN in reach.of(by_a_plan)
