"""
`python -m tests.support.warm_parent`: forks the Python programs that tests start, so that each finds what it would
import from elsewhere already imported.

Nothing of ours is imported before the fork, no settings, no thread, no connection, no reactor: whatever this project
does at its start, it does in the new process. Orders and answers are lines of JSON. A process that has ended stays
until its end was asked for, so that its number is nobody else's. All end with this one, which ends with its standard
input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from typing import Any

# What takes longest of what the web process, the workers and the sandbox import.
IMPORTED = (
    "aiohttp.web",
    "autobahn.twisted.websocket",
    "cachetools",
    "channels.generic.websocket",
    "channels.routing",
    "corsheaders.middleware",
    "cronsim",
    "cryptography.fernet",
    "daphne.http_protocol",
    "daphne.ws_protocol",
    "django.contrib.admindocs.views",
    "django.contrib.sessions.middleware",
    "django.contrib.staticfiles.handlers",
    "django.core.handlers.asgi",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.db.migrations.executor",
    "django_filters",
    "drf_spectacular.utils",
    "fido2.server",
    "httpx",
    "jwt",
    "prometheus_client.core",
    "psutil",
    "psycopg_pool",
    "pydantic.root_model",
    "rest_framework.metadata",
    "rich.console",
    "segno",
    "statistics",
    "unittest",
    "uuid_utils.compat",
    "whitenoise.middleware",
)
# What the interpreter or one of these reads as it starts: a process that has others must start by itself.
READ_AT_START = (
    "PYTHON",
    "LD_",
    "DYLD_",
    "MALLOC_",
    "LC_",
    "LANG",
    "TZ",
    "OTEL_",
    "PROMETHEUS_",
    "AIOHTTP_",
    "OPENSSL_",
)


def is_like(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a process with one environment can be forked from one that was started with the other."""
    return _read(one) == _read(other)


def _read(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(READ_AT_START)}


def serve() -> dict[str, Any]:
    """Do as ordered; returns in a new process alone, with the order that it was made for."""
    alive: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "start":
            begun, begins = os.pipe()
            pid = os.fork()
            if not pid:
                become(order)
                os.write(begins, b".")
                os.closerange(3, 1024)
                return dict(order)
            alive.add(pid)
            os.close(begins)
            os.read(begun, 1)  # or who ordered it would signal a process that is still this one
            os.close(begun)
            _answer(pid)
        else:
            found, status = os.waitpid(order["pid"], os.WNOHANG)
            alive.discard(found)
            _answer(os.waitstatus_to_exitcode(status) if found else None)
    for pid in alive:
        _kill(pid)
    os._exit(0)


def _answer(answer: int | None) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # as one that has no session of its own yet
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return


def become(order: Mapping[str, Any]) -> None:
    """What a process that is started by itself has: a session, its three files, its environment."""
    os.setsid()
    output = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(order["environ"])


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _answer(os.getpid())
    order = serve()
    program, *sys.argv[1:] = order["arguments"]
    if program == "-m":
        sys.argv[:] = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = program
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
