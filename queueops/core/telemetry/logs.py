"""
Log lines: text for people, or one JSON object a line for collectors. Neither ever shows a secret.

The code that begins a piece of work names its job, request or executor once (`tell_of`). Every line that the work
writes repeats the names.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from queueops.core.values.masking import masked_text

Facts = Callable[[], Mapping[str, Any]]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOBODY: Mapping[str, Facts] = {}
_facts: ContextVar[Mapping[str, Facts]] = ContextVar("log_facts", default=_NOBODY)

HIDDEN = "(hidden)"
UNTOLD_SECONDS = 60.0  # after this pause, an equal warning is a new trouble
FAULTS_FROM = 500  # the lowest status of an answer that is our fault


def tell_of(work: str, facts: Facts) -> None:
    """
    Add what `facts` returns to every line of this context from now on: this thread, request or task.

    `facts` is called when a line is written and not before, so that work without a line pays nothing for it.

    Args:
        work: The name of the work; facts that were given before under this name are replaced.
    """
    _facts.set({**_facts.get(), work: facts})


def without_secrets(text: str) -> str:
    """Return the text with whatever looks like a key, token or password replaced by (hidden)."""
    return masked_text(text, mask=HIDDEN)


class OnceWhileItLasts(logging.Filter):
    """Lets the first of equal warnings through, and another only after a minute without any of them."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now, last = time.monotonic(), self._last.get(record.msg)
        self._last[record.msg] = now  # the template as written in code, without its arguments
        return last is None or now - last > UNTOLD_SECONDS


class RefusalFilter(logging.Filter):
    """Takes the traceback out of the line of a refused request: with it, a refusal would look like a fault of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", None)
        if record.name.startswith("django.") and isinstance(status, int) and status < FAULTS_FROM:
            record.exc_info = record.exc_text = None
        return True


class TextFormatter(logging.Formatter):
    """A line for people; the facts of `tell_of` and `extra=` follow the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s  %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        about = " ".join(f"{name}={value}" for name, value in _about(record).items())
        line = super().formatMessage(record)
        return f"{line}  [{about}]" if about else line

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """A JSON object; `extra=` and the facts of `tell_of` become keys, such as job, project, executor, request."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        line |= {name: _shown(value) for name, value in _about(record).items() if name not in line}
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = without_secrets(self.formatStack(record.stack_info))
        return json.dumps(line, default=str, ensure_ascii=False)


def _about(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for facts in _facts.get().values():
        found |= facts()
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if not isinstance(own.get("request"), str):
        own.pop("request", None)  # Django passes the whole request; our own fact `request` is a text
    found |= own
    return {name: value for name, value in found.items() if value is not None}


def _shown(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    return without_secrets(str(value))
