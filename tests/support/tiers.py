"""
Marks each test with what it needs, by what it uses, and fails one that starts what its marks do not tell.

The code of a test, of its fixtures and of whatever they call is read: what reaches something that starts a process is a
`process` test, what reaches the browser a `browser` test, what starts threads of its own a `concurrency` test. What is
started by way of the product shows when the test runs: the guard names it, and it goes into STARTERS.
"""

from __future__ import annotations

import asyncio.base_events
import contextlib
import ctypes.util
import functools
import inspect
import os
import subprocess
import sys
import sysconfig
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

from queueops.core import version
from tests.support.where_time_went import CPU

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"process", "browser", "matrix", "soak"}
# Of this process; above it, a test is a matrix. Twice what the dearest took on a slow host; the list begins at 1 s.
CPU_SECONDS = 8.0
# How long the machine on which they were counted took for so many rounds: a slower one has as much more time.
ROUNDS, ROUNDS_SECONDS = 1_000_000, 0.055

TESTS = (f"{ROOT}/tests/", f"{ROOT}/clients/python/tests/")
PRODUCT = tuple(f"{ROOT}/{name}/" for name in ("queueops", "jobs", "ratelimits", "dashboards"))
# What its caller needs, by module and name.
Starters = Mapping[str, tuple[str, set[str]]]
STARTERS: Starters = {
    "subprocess": ("process", {"Popen", "run", "check_call", "check_output"}),
    "asyncio.subprocess": ("process", {"create_subprocess_exec"}),
    "posix": ("process", {"fork", "posix_spawn", "posix_spawnp"}),
    "multiprocessing.context": ("process", {"Process", "DefaultContext", "ForkContext", "SpawnContext"}),
    "queueops.core.processes.supervisor": ("process", {"Supervisor"}),
    "queueops.core.embedded.cluster": ("process", {"EmbeddedServer"}),
    "playwright.sync_api": ("browser", {"sync_playwright"}),
    "threading": ("concurrency", {"Thread", "Timer"}),
    "concurrent.futures.thread": ("concurrency", {"ThreadPoolExecutor"}),
}
# Of the tests that come to a file of SQL, so many of each file run on PostgreSQL 15, too, and all that read a plan.
STATEMENTS = frozenset(path.stem for place in PRODUCT for path in Path(place).rglob("sql/*.sql"))
TESTS_OF_A_STATEMENT = 12
PLAN = "a plan"
READS_A_PLAN: Starters = {"tests.support.plans": (PLAN, {"explain_file", "explain_reads", "explain", "nodes"})}
# The session's own server is nobody's; pytest-django's web server is a thread; rows of factories say nothing of SQL.
FIXTURES = {"database_server": frozenset[str](), "live_server": frozenset({"concurrency"})}
NOT_READ = frozenset({"tests.factories", "tests.support.sandbox"})
STDLIB = sysconfig.get_path("stdlib")


class Reach:
    """What functions and classes of some places come to start, by themselves or by others of these places."""

    def __init__(self, places: tuple[str, ...], starters: Starters, *, not_read: frozenset[str] = frozenset()) -> None:
        self._places = places
        self._starters = starters
        self._not_read = not_read
        self._known: dict[int, tuple[Any, frozenset[str]]] = {}

    def of(self, thing: Any) -> frozenset[str]:
        if id(thing) not in self._known:
            self._known[id(thing)] = thing, frozenset()  # what calls itself reaches nothing more by it
            self._known[id(thing)] = thing, self._found(_plain(thing))
        return self._known[id(thing)][1]

    def _found(self, thing: Any) -> frozenset[str]:
        for one in (thing, type(thing)):  # itself, or a thing of that class
            need, names = self._starters.get(getattr(one, "__module__", None) or "", ("", set[str]()))
            if getattr(one, "__name__", "") in names:
                return frozenset({need})
        if not isinstance(thing, FunctionType | type) or not self._is_read(thing.__module__):
            return frozenset()
        return self._own(thing).union(*map(self.of, _used_by(thing)))

    def _own(self, thing: FunctionType | type) -> frozenset[str]:
        return frozenset()

    def _is_read(self, module: str) -> bool:
        path = getattr(sys.modules.get(module), "__file__", None) or ""
        return path.startswith(self._places) and module not in self._not_read


class Statements(Reach):
    """Which files of SQL functions come to: product code gives their names to `run_sql`."""

    def _own(self, thing: FunctionType | type) -> frozenset[str]:
        return STATEMENTS & set(_texts(thing.__code__)) if isinstance(thing, FunctionType) else frozenset()


def _plain(thing: Any) -> Any:
    while isinstance(thing, functools.partial | property | staticmethod | classmethod):
        inner = (
            "func" if isinstance(thing, functools.partial) else "fget" if isinstance(thing, property) else "__func__"
        )
        thing = getattr(thing, inner)
    return inspect.unwrap(thing) if callable(thing) else thing


def _used_by(thing: FunctionType | type) -> Iterator[Any]:
    if isinstance(thing, type):
        yield from vars(thing).values()
        yield from thing.__bases__
        return
    names = set(_names(thing.__code__))
    for name in names & thing.__globals__.keys():
        used = thing.__globals__[name]
        if isinstance(used, ModuleType):  # which of the names go with it, the names alone do not tell
            yield from (getattr(used, attribute) for attribute in names if attribute in vars(used))
        else:
            yield used
    for cell in thing.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts(constant)
        elif isinstance(constant, str):
            yield constant


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def pytest_sessionstart() -> None:
    version.commit()  # the product asks git once


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    starts, statements = Reach(TESTS, STARTERS), Statements((*TESTS, *PRODUCT), READS_A_PLAN, not_read=NOT_READ)
    known: dict[Any, tuple[frozenset[str], frozenset[str]]] = {}
    counted: Counter[str] = Counter()
    # Whatever their order is; the dearest last, for others may come to the same statements.
    for item in sorted(items, key=lambda one: (one.get_closest_marker("matrix") is not None, one.nodeid)):
        function, fixtures = getattr(item, "function", None), item._fixtureinfo  # type: ignore[attr-defined]
        key = function, id(fixtures)  # the same for all cases of a test
        if key not in known:
            used = {name: [one.func for one in definitions] for name, definitions in fixtures.name2fixturedefs.items()}
            own = [function, *(one for name, functions in used.items() if name not in FIXTURES for one in functions)]
            needs = frozenset[str]().union(*map(starts.of, own), *(FIXTURES[name] for name in FIXTURES if name in used))
            known[key] = needs, frozenset[str]().union(*map(statements.of, own))
        needs, come_to = known[key]
        given = getattr(item, "callspec", None)
        for need in needs.union(*map(starts.of, given.params.values() if given else ())):
            item.add_marker(need)
        if {"process", "browser", "soak"}.isdisjoint(mark.name for mark in item.iter_markers()) and (
            PLAN in come_to or any(counted[statement] < TESTS_OF_A_STATEMENT for statement in come_to)
        ):
            item.add_marker("sql")
            counted.update(come_to)


class Watch:
    """What the running test starts; None between tests."""

    started: list[str] | None = None

    def hear_process(self, by: str, arguments: tuple[Any, ...]) -> None:
        if self.started is None:
            return
        # A package that is imported late looks for its library with ldconfig and a compiler.
        if all(frame.f_code.co_filename != ctypes.util.__file__ for frame, _ in traceback.walk_stack(None)):
            self.started.append(f"process: {by} {arguments[1:2]}"[:200])

    def hear_thread(self, frame: FrameType | None) -> None:
        """One that the tests start themselves: those of executors, servers and libraries make no race of a test."""
        while frame and frame.f_code.co_filename.startswith(STDLIB):
            if frame.f_code.co_filename == asyncio.base_events.__file__:
                return  # of a loop, which looks up a name
            frame = frame.f_back
        if self.started is not None and frame and frame.f_code.co_filename.startswith(TESTS):
            self.started.append(f"concurrency: a thread, in {frame.f_code.co_name}")


def _slowness() -> float:
    """How much longer this machine takes now, at least once."""
    began, left = time.process_time(), 0
    for number in range(ROUNDS):
        left += number * number % 7
    return max(1.0, (time.process_time() - began) / ROUNDS_SECONDS)


watch = Watch()
_start = threading.Thread.start


@functools.wraps(_start)
def _start_watched(thread: threading.Thread) -> None:
    if type(thread) is threading.Thread:  # the product's own kinds of threads are the product's
        watch.hear_thread(sys._getframe(1))
    _start(thread)


def _watched(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def started(*arguments: Any, **options: Any) -> Any:
        watch.hear_process(name, arguments)
        return function(*arguments, **options)

    return started


threading.Thread.start = _start_watched  # type: ignore[method-assign,assignment]
# An audit hook would also hear of each id() and each attribute of a function: a tenth of what it takes to collect.
subprocess.Popen.__init__ = _watched(subprocess.Popen.__init__, "Popen")  # type: ignore[method-assign]
for _name in ("fork", "posix_spawn", "posix_spawnp"):
    setattr(os, _name, _watched(getattr(os, _name), _name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    watch.started, began = [], time.process_time()
    try:
        yield
    finally:
        started, watch.started = watch.started or [], None
    marks = {mark.name for mark in item.iter_markers()}
    if marks & {"process", "browser"}:
        return
    if unmarked := [one for one in started if one.partition(":")[0] not in marks]:
        pytest.fail(f"without the mark it starts {unmarked}: tell tests/support/tiers.py by what", pytrace=False)
    spent = time.process_time() - began
    item.user_properties.append((CPU, spent))
    if spent > CPU_SECONDS and not marks & HEAVY and spent > CPU_SECONDS * _slowness():
        pytest.fail(f"{spent:.1f} s of CPU: make it cheaper, or mark it `matrix`", pytrace=False)
