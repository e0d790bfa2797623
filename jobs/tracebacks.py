"""Makes a handler's tracebacks and log lines fit to be stored: bounded, masked, and without the executor's frames."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from traceback import TracebackException
from types import TracebackType
from typing import Any

from jobs.handlers.http.answers import MAX_SECRETS, storable
from queueops.core.values.masking import masked_text
from queueops.tenancy.secrets.credentials import OpenCredential

MAX_TRACEBACK = 8_000  # characters
MAX_FRAMES = 40  # the innermost frames of one exception
MAX_PART = 1_000  # characters of one frame, or of an exception's message: a long one must not push the frames out
MAX_LINE = 300
CUT = "[cut]\n"
DIAGNOSTICS = frozenset({"traceback", "log"})  # keys of an event's data
MIN_SECRET_LENGTH = 6  # masking shorter secrets would mask ordinary words

_EXECUTOR = "jobs.executor.loop"
_PATH = re.compile(r'(?<=File ")/[^"\n]+')


def traceback_of(error: BaseException, secrets: Sequence[str] = ()) -> str:
    """
    Return the traceback of a handler's exception: at most MAX_TRACEBACK characters that PostgreSQL's jsonb takes.

    The innermost frames are kept; the executor's own frames and local variables are not. Paths begin at the package.
    The text is empty if the exception was not raised, for example if a group's handler returned it.

    Args:
        secrets: Masked wherever they occur, besides the secrets that masking.py finds by itself; longest first.
    """
    if error.__traceback__ is None:
        return ""
    try:
        raised_in = _below_executor(error.__traceback__)
        told = TracebackException(type(error), error, raised_in, limit=-MAX_FRAMES, compact=True)
        text = "".join(_fit(part, tuple(secrets)) for part in told.format())
    except Exception:  # noqa: BLE001 - the exception's class is the handler's code, and its str() may raise
        return ""
    if len(text) <= MAX_TRACEBACK:
        return text
    return CUT + text[len(CUT) - MAX_TRACEBACK :].partition("\n")[2]


def secrets_of(credential: object) -> list[str]:
    """Return an open credential's secrets and each line of them, as repr() splits a private key; longest first."""
    found: set[str] = set()
    waiting: list[Any] = [credential.secret] if isinstance(credential, OpenCredential) else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str):
            found |= {value, *value.splitlines()}
    return sorted((text for text in found if len(text) >= MIN_SECRET_LENGTH), key=len, reverse=True)[:MAX_SECRETS]


def fit_line(text: str, secrets: Sequence[str] = ()) -> str:
    """Return a line that a handler logged as it is to be stored: masked, then cut to MAX_LINE characters."""
    kept = _fit(text, tuple(secrets)).rstrip("\n").replace("\n", " ")
    return kept if len(kept) <= MAX_LINE else kept[:MAX_LINE] + "…"


def without_diagnostics(data: Any) -> Any:
    """Return an event's data for readers who must not see tracebacks and log lines of the operator's code."""
    return {name: value for name, value in data.items() if name not in DIAGNOSTICS} if isinstance(data, dict) else data


def _below_executor(raised_in: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the handler's first frame on; all of it if the executor itself raised."""
    handlers, frame = raised_in, raised_in
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") == _EXECUTOR:
            handlers = frame.tb_next
        frame = frame.tb_next
    return handlers or raised_in


def _fit(part: str, secrets: tuple[str, ...]) -> str:
    """Cut one frame or message. Known secrets are masked first: otherwise a cut might leave half of a secret."""
    whole = storable(part, secrets)
    kept = masked_text(whole[:MAX_PART]) + ("…" if len(whole) > MAX_PART else "")
    lines = _PATH.sub(lambda found: _shortened(found[0]), kept).splitlines()
    return "".join(f"{line if len(line) <= MAX_LINE else line[:MAX_LINE] + '…'}\n" for line in lines)


def _shortened(path: str) -> str:
    roots = [root.rstrip("/") + "/" for root in sys.path if root]
    known = max((root for root in roots if path.startswith(root)), key=len, default="")
    return path[len(known) :] if known else "…/" + "/".join(path.split("/")[-3:])
