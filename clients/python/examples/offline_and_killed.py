"""
The app of assistant.py loses its network, is killed in the middle of a call, comes back, and has counted every token.

Start `make run` in another terminal first. The app uses that QueueOps, and its sandbox as the language model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import httpx

from assistant import MAX_OUTPUT_TOKENS, WORKERS
from network import Network

CALLS_EACH = 12  # before something happens to the app
# Settings of the sandbox: its model takes its time, and has no limits of its own.
KNOBS = {
    "latency": {"mode": "fixed", "milliseconds": 250},
    "gemini": {"requests_per_minute": None, "tokens_per_minute": None, "requests_per_day": None},
}


class Sum(NamedTuple):
    calls: int
    tokens: int


class Story:
    """One user's month; the network between the app and the server is ours to take away."""

    def __init__(self, server: str, key: str, model: str, outbox: Path) -> None:
        self.user: UUID = uuid4()
        self.network = Network(server)
        self._server = httpx.Client(base_url=server, headers={"Authorization": f"Bearer {key}"}, timeout=30)
        self._model = httpx.Client(base_url=model, timeout=30)
        self._model.patch("/_sandbox/knobs", json=KNOBS).raise_for_status()
        options = {
            "server": self.network.url,
            "key": key,
            "model": model,
            "user": str(self.user),
            "outbox": str(outbox),
        }
        script = str(Path(__file__).with_name("assistant.py"))
        self._command = [sys.executable, script, *(f"--{name}={value}" for name, value in options.items())]

    @contextmanager
    def app(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def provider_says(self) -> Sum:
        """Return the model's charges, by its own ledger."""
        query = f"user={self.user}&status=200&limit=1000"
        calls = self._model.get(f"/_sandbox/ledger?{query}").raise_for_status().json()["calls"]
        return Sum(len(calls), sum(call["cost_tokens"] + MAX_OUTPUT_TOKENS for call in calls))

    def server_says(self) -> dict[str, int]:
        """Return the user's standing."""
        standing = self._server.get("/api/v1/usage/me/", params={"user_id": str(self.user)}).raise_for_status().json()
        return {name: standing[name] for name in ("used", "quota")}

    def tell(self, what: str) -> None:
        provider, server = self.provider_says(), self.server_says()
        print(f"{what:<44} provider: {provider.calls:>3} calls {provider.tokens:>6,} tokens   ", end="")
        print(f"server: {server['used']:>6,} of {server['quota']:,}", flush=True)


def wait_for_calls(app: subprocess.Popen[str], count: int) -> None:
    """Return when the app begins the last of so many calls."""
    while count:
        line = app.stdout.readline() if app.stdout else ""
        if not line:
            raise SystemExit("the app ended early")
        if line == "calling\n":
            count -= 1
        else:
            print(f"  app: {line}", end="")


def run(story: Story) -> bool:
    """Tell the story; return whether server and provider agree in the end."""
    with story.app() as app:
        wait_for_calls(app, CALLS_EACH)
        story.tell("online")
        story.network.go_down()
        wait_for_calls(app, CALLS_EACH)
        story.tell("offline: the app goes on")
        wait_for_calls(app, 2 * WORKERS)  # more calls than began meanwhile: the last one has just begun
        app.kill()
    story.tell("killed in the middle of calls")
    with story.app() as app:
        wait_for_calls(app, CALLS_EACH)
        story.tell("started again, still offline")
        story.network.come_back()
        print(*(f"  app: {line}" for line in app.stdout or () if line != "calling\n"), sep="", end="")
    story.tell("online again, until the allowance is used up")
    return story.provider_says().tokens == story.server_says()["used"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="http://127.0.0.1:8001", help="The sandbox.")
    parser.add_argument("--key", default=os.environ.get("QUEUEOPS_KEY"), help="With the scope usage; or QUEUEOPS_KEY.")
    given = parser.parse_args()
    if not given.key:
        parser.error("give a key with the scope usage: --key, or the variable QUEUEOPS_KEY")
    with tempfile.TemporaryDirectory() as directory:
        is_exact = run(Story(given.server, given.key, given.model, Path(directory) / "outbox.db"))
    print("exact" if is_exact else "NOT exact")
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
