"""A web process for all tests of this package, clients of it, and a proxy that misbehaves on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queueops.tenancy.models import ProducerKey
from queueops_client import QueueOps
from queueops_client.cli.commands import run
from tests.api.conftest import ALL_SCOPES
from tests.client.proxy import Proxy, proxy_to
from tests.client.typescript import TypeScriptQueueOps
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support.background import in_background
from tests.support.processes import ROOT


@pytest.fixture(scope="package")  # not longer: tests elsewhere copy the database, which nobody may use then
def address(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    with django_db_blocker.unblock(), web_process() as (address, _):
        yield address


@pytest.fixture
def key(transactional_db: None) -> str:
    """Of the project acme."""
    return ProducerKey.issue(make_project("acme"), name="producer", scopes=ALL_SCOPES)[1]


Connect = Callable[..., QueueOps]
CLIENTS: dict[str, Any] = {"python": QueueOps, "typescript": TypeScriptQueueOps}


@pytest.fixture(params=CLIENTS.values(), ids=[*CLIENTS])
def connect(request: pytest.FixtureRequest) -> Connect:
    """The class of a client."""
    client: Connect = request.param
    return client


@pytest.fixture
def queue(address: str, key: str, connect: Connect) -> Iterator[QueueOps]:
    with connect(address, key) as client:
        yield client


@pytest.fixture
def proxy(address: str) -> Iterator[Proxy]:
    with in_background(proxy_to(address)) as running:
        yield running


@pytest.fixture
def environ(address: str, key: str, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "clients/python/src"),
        "QUEUEOPS_URL": address,
        "QUEUEOPS_KEY": key,
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: Any, environ: dict[str, str], tmp_path: Path) -> Any:
    """Run it in this process; returns its code, output and errors."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return called
