"""The sandbox provider as a real process, for tests that judge QueueOps from the provider's side."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

ROOT = Path(__file__).resolve().parents[2]


class SandboxAnsweredError(AssertionError):
    """The sandbox refused what a test asked of it."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox: `url` has no trailing slash."""

    url: str
    pid: int

    def row_url(self, sheet: str, row: str) -> str:
        return f"{self.url}/plain/sheets/{quote(sheet, safe='')}/rows/{quote(row, safe='')}"

    def turn(self, **knobs: Any) -> dict[str, Any]:
        """Change knobs and return all of them: `sandbox.turn(error_rates={503: 0.1})`."""
        return dict(self._ask("PATCH", "/_sandbox/knobs", knobs))

    def calls(self, **filters: Any) -> list[dict[str, Any]]:
        """
        Return the ledger's calls; filters: method, path, status, accepted, effect_key, provider,
        project, user, model, quota_kind, cause.
        """
        return self._pages("/_sandbox/ledger", "calls", filters)

    def counters(self) -> dict[str, Any]:
        return dict(self._ask("GET", "/_sandbox/ledger?limit=1")["counters"])

    def effects(self, *, by: str = "row", min_count: int = 1) -> dict[str, int]:
        """Return how often each "sheet/row" was written, or each effect key applied (`by="effect_key"`)."""
        found = self._pages("/_sandbox/effects", "effects", {"by": by, "min_count": min_count})
        return {effect["name"]: effect["count"] for effect in found}

    def usage(self, service: str) -> list[dict[str, Any]]:
        """Return limit, use and rejections of each key under each quota of a provider that has any."""
        return list(self._ask("GET", f"/_sandbox/usage?{urlencode({'service': service})}")["quotas"])

    def batches(self, **filters: Any) -> list[dict[str, Any]]:
        """Return every batch as it is, in the order in which they were made; filters: provider, project, phase."""
        return self._pages("/_sandbox/batches", "batches", filters)

    def batch_lines(self, batch_id: str) -> list[dict[str, Any]]:
        """Return what became of each line of a batch, and what it was billed."""
        return self._pages(f"/_sandbox/batches/{batch_id}/lines", "lines", {})

    def billing(self) -> dict[str, Any]:
        """Return the sums of what was billed, delivered and paid for again."""
        return dict(self._ask("GET", "/_sandbox/billing"))

    def revoke(self, key: str) -> list[str]:
        """Answer 401 to every call with this key from now on; return all keys that are revoked."""
        return list(self._ask("POST", "/_sandbox/revoked_keys", {"key": key})["revoked_keys"])

    def move_clock(self, *, seconds: float) -> None:
        """Let the sandbox's windows, delays, outages and batches be so much further on, until it is reset."""
        self._ask("PATCH", "/_sandbox/clock", {"seconds": seconds})

    def reset(self) -> None:
        """Default knobs, real time, no rows, an empty ledger."""
        self._ask("POST", "/_sandbox/reset")

    def clear_ledger(self) -> None:
        self._ask("DELETE", "/_sandbox/ledger")

    def _pages(self, path: str, field: str, filters: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            query = urlencode({name: _text(value) for name, value in filters.items()} | {"after": after, "limit": 1000})
            page = self._ask("GET", f"{path}?{query}")
            found += page[field]
            after = page["next_after"]
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)  # noqa: S310 (our own server)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                text = response.read()
        except urllib.error.HTTPError as error:
            raise SandboxAnsweredError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(text) if text else None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def running_sandbox() -> Iterator[Sandbox]:
    """Start a sandbox on a free port and stop it, by its pid, with SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("sandbox listening on "), f"the sandbox did not start: {line!r}"
        yield Sandbox(line.split()[-1], process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="session")
def sandbox_process() -> Iterator[Sandbox]:
    """One sandbox for the whole session; use `sandbox`, which resets it."""
    with running_sandbox() as running:
        yield running


@pytest.fixture
def sandbox(sandbox_process: Sandbox) -> Sandbox:
    """A sandbox as after its start: default knobs, no rows, an empty ledger."""
    sandbox_process.reset()
    return sandbox_process
