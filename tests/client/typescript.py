"""
The TypeScript client as a form of the Python one: the same calls, records and errors, of a process asked in JSON.

What it must not hide: an error's text and code are compared with those of the Python client for the same answer.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID

import queueops_client
from queueops_client import ApiError, ClientError, JobSpec, Retry, Standing, Unreachable, Update, WaitTimeout
from queueops_client.records import Event, Forecast, Moved, Paused, Project, Record, SentAgain, moments
from tests.support.typescript import NODE_OPTIONS, PACKAGE, node

ANSWER_SECONDS = 120.0
BY_THE_APIS_NAMES = {
    *("submit", "jobs", "batches", "dead_letters", "schedules", "fires", "audit"),
    *("webhooks", "deliveries", "heard_jobs", "windows", "create_window", "change_window"),
    *("allowances", "create_allowance", "change_allowance", "operations"),
    *("create_schedule", "preview_schedule", "change_schedule", "create_webhook", "change_webhook"),
}  # methods whose options travel as they are
STREAMS = {
    *("jobs", "batches", "dead_letters", "results", "watch", "schedules", "fires", "audit"),
    *("webhooks", "deliveries", "heard_jobs", "windows", "allowances", "operations"),
}
PLAIN: Mapping[str, type[Record]] = {
    "project": Project,
    "forecast": Forecast,
    "send_webhook_again": SentAgain,
    **dict.fromkeys(("cancel_jobs", "change_jobs_priority", "reschedule_jobs", "requeue", "discard"), Moved),
    **dict.fromkeys(("pause_batch", "resume_batch", "pause_project", "resume_project"), Paused),
}
Messages = queue.SimpleQueue[dict[str, Any]]


class Driver:
    """One process for all clients of a test process; any number of threads may ask."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [node(), NODE_OPTIONS, "test/driver.mjs"],
            cwd=PACKAGE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ids = itertools.count(1)
        self._answers: dict[int, Messages] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        atexit.register(self._process.kill)

    def ask(self, **request: Any) -> tuple[int, Messages]:
        number = next(self._ids)
        answers = self._answers[number] = queue.SimpleQueue()
        self.say(id=number, **request)
        return number, answers

    def say(self, **message: Any) -> None:
        text = json.dumps(message, default=_plain)
        with self._lock:
            assert self._process.stdin
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            message = json.loads(line)
            self._answers[message["id"]].put(message)


driver = functools.cache(Driver)
names = itertools.count()


class Twin:
    """
    A client or tracker in the driver's process, with the Python one's methods.

    Args:
        kind: Its class there.
        arguments: Of the class.
        given: Functions whose values travel with each request, by what the class calls them.
    """

    def __init__(self, kind: str, *arguments: Any, given: Mapping[str, Callable[[], Any]] | None = None) -> None:
        self._given = given or {}
        _, answers = driver().ask(make=kind, arguments=arguments, given=self._values())
        self._handle = _value(answers.get(timeout=ANSWER_SECONDS))

    def methods(self) -> set[str]:
        """In the Python client's words."""
        return {snake(name) for name in self._ask("methods", [])} - {"constructor"}

    def _values(self) -> dict[str, Any]:
        return {name: value() for name, value in self._given.items()}

    def _call(self, name: str, /, *positional: Any, **named: Any) -> Any:
        options = named if name in BY_THE_APIS_NAMES else {camel(key): value for key, value in named.items()}
        arguments = [*positional, options] if options else [*positional]
        if name in STREAMS:
            return self._items(name, arguments)
        found = self._ask(name, arguments)
        return PLAIN[name].of(found) if name in PLAIN and "$" not in found else found

    def _ask(self, name: str, arguments: list[Any]) -> Any:
        _, answers = driver().ask(on=self._handle, call=camel(name), arguments=arguments, given=self._values())
        return _value(answers.get(timeout=ANSWER_SECONDS))

    def _items(self, name: str, arguments: list[Any]) -> Iterator[Any]:
        number, answers = driver().ask(on=self._handle, call=camel(name), arguments=arguments, given=self._values())
        try:
            while "item" in (message := answers.get(timeout=ANSWER_SECONDS)):
                yield _record(message["item"])
            _value(message)
        except GeneratorExit:
            driver().say(id=number, stop=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """A producer's client holds nothing that would have to be let go of."""

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)


class TypeScriptQueueOps(Twin):
    def __init__(self, base_url: str, key: str, *, timeout: float = 30.0, retry: Retry | None = None) -> None:
        options: dict[str, Any] = {"timeout": timeout}
        if retry is not None:
            names = ("budget_seconds", "base_seconds", "cap_seconds")
            options["retry"] = {"$": "Retry", "raw": {camel(name): getattr(retry, name) for name in names}}
        super().__init__("QueueOps", base_url, key, options)

    def submit(self, kind: str, payload: Mapping[str, Any] | None = None, **options: Any) -> Any:
        return self._call("submit", kind, payload or {}, **options)

    def submit_many(self, jobs: Any, **options: Any) -> Any:
        return self._call("submit_many", list(jobs), **options)

    def forecast(self, jobs: Any, **options: Any) -> Any:
        return self._call("forecast", list(jobs), **options)

    def preview_schedule(self, *arguments: Any, **options: Any) -> Any:
        return moments(self._call("preview_schedule", *arguments, **options))


class TypeScriptUsageTracker(Twin):
    """
    Args:
        token, clock: Functions are called before each request to the driver, and their values sent along.
    """

    def __init__(self, base_url: str, token: Any, *, clock: Callable[[], float] = time.time, **options: Any) -> None:
        token_name, clock_name = (f"{name} {next(names)}" for name in ("token", "clock"))
        given = {
            token_name: token if callable(token) else lambda: token,
            clock_name: lambda: clock() - time.time(),
        }
        named = {camel(name): value for name, value in options.items()}
        clock_there = {"$": "Clock", "raw": clock_name}
        super().__init__(
            "UsageTracker", base_url, {"$": "Given", "raw": token_name}, {**named, "clock": clock_there}, given=given
        )

    @contextmanager
    def use(self, estimate: int | None = None, **options: Any) -> Iterator[Any]:
        """The function that is given to the client's `use` waits in the driver for the end of the block here."""
        if estimate is not None:
            options["estimate"] = estimate
        named = {camel(name): value for name, value in options.items()}
        number, answers = driver().ask(on=self._handle, call="use", arguments=[named], given=self._values())
        begun = answers.get(timeout=ANSWER_SECONDS)
        if "error" in begun:
            raise _error(begun["error"])
        usage = SimpleNamespace(**begun["item"], tokens=None)
        try:
            yield usage
        except BaseException:
            driver().say(id=number, answer={"tokens": usage.tokens, "fails": True})
            ended = answers.get(timeout=ANSWER_SECONDS)
            assert ended["error"]["text"].startswith("Error: the call failed"), ended
            raise
        driver().say(id=number, answer={"tokens": usage.tokens, "fails": False})
        _value(answers.get(timeout=ANSWER_SECONDS))

    def standing(self, user_id: Any = None) -> Standing:
        said = self._call("standing", *([] if user_id is None else [user_id]))
        parsed = {"user_id": UUID(said["user_id"]), "resets_at": datetime.fromisoformat(said["resets_at"])}
        return Standing(**{**said, **parsed})

    def known(self, user_id: Any = None) -> Any:
        return _named(self._call("known", *([] if user_id is None else [user_id])))

    def flush(self, timeout: float | None = None) -> Any:
        return _named(self._call("flush", **({} if timeout is None else {"timeout": timeout})))

    def report(self) -> Any:
        optional = {"oldest_at": None, "paused": None, "last_error": None}  # what is undefined there does not travel
        return SimpleNamespace(**{**optional, **vars(_named(self._call("report")))})

    def close(self) -> None:
        self._call("close")


def error_types(answers: list[tuple[str, int]]) -> list[str]:
    """The class of the error for each code and status."""
    found: list[str] = _value(driver().ask(call="errorTypes", arguments=answers)[1].get(timeout=ANSWER_SECONDS))
    return found


def _named(told: Any) -> Any:
    """An object that is no record, with names as Python has them."""
    if isinstance(told, list):
        return tuple(map(_named, told))
    if isinstance(told, dict):
        return SimpleNamespace(**{snake(name): _named(value) for name, value in told.items()})
    return told


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return {"$": type(value).__name__, "raw": value.raw}
    return value.as_dict() if isinstance(value, JobSpec) else str(value)


def _value(message: dict[str, Any]) -> Any:
    if "error" in message:
        raise _error(message["error"])
    return _record(message["value"])


def _record(told: Any) -> Any:
    if isinstance(told, list):
        return [_record(one) for one in told]
    if not isinstance(told, dict):
        return told
    if "$" in told:
        kind: type[Record] = getattr(queueops_client, told["$"])
        return kind.of(told["raw"])
    if "isLive" in told:
        event = Event.of(told["event"]) if "event" in told else None
        return Update(told["kind"], _record(told["subject"]), event, told["isLive"], told.get("problem", ""))
    return told


def _error(told: dict[str, Any]) -> Exception:
    kind = getattr(queueops_client, told["class"], None)
    if kind is None:
        return AssertionError(told["text"])
    error: ClientError
    if issubclass(kind, ApiError):
        named = {name: told.get(name) for name in ("fields", "details", "retry_after")}
        error = kind(told["code"], told["reason"], status=told["status"], **named)
    elif kind is Unreachable:
        error = Unreachable(
            told["text"], may_have_arrived=told["may_have_arrived"], idempotency_key=told["idempotency_key"]
        )
    elif kind is WaitTimeout:
        error = WaitTimeout(told["text"], latest=_record(told["latest"]))
    else:
        error = kind(told["text"])
        error.__dict__["retry_after"] = told["retry_after"]
    assert (error.code, str(error)) == (told["code"], told["text"])
    return error
