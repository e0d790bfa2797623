"""A batch by OpenAI's door, while those who carry it out are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from jobs.models import DeadLetter, Job, ProviderBatch
from jobs.states import UNFINISHED
from queueops.tenancy.models import Project
from tests.faults.clusters import Cluster, cluster, kill
from tests.faults.ledger import Ledger
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox

from .conftest import MODEL

State = ProviderBatch.State


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def write_lines(path: Path, count: int) -> None:
    with path.open("w") as file:
        for number in range(count):
            body: Any = {"model": MODEL, "messages": [{"role": "user", "content": f"Row {number}"}]}
            line = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")


def moments(count: int) -> Iterator[tuple[str, Callable[[], bool]]]:
    """When a worker is killed: while batches are handed over, are awaited, and are read."""
    lines = Job.objects.filter(via="batch")
    yield "the first hand-over", ProviderBatch.objects.exists
    yield "what the provider has", ProviderBatch.objects.exclude(provider_id="").exists
    yield "the first results", lambda: lines.exclude(status__in=UNFINISHED).exists()
    yield "half of the results", lambda: lines.exclude(status__in=UNFINISHED).count() > count // 2


def kill_all(running: Cluster) -> None:
    for executor in running.executors():
        kill(executor)


@pytest.mark.parametrize(
    "count", [pytest.param(300, id="short"), pytest.param(50_000, id="long", marks=pytest.mark.soak)]
)
def test_each_line_is_answered_once_and_none_is_paid_twice_whoever_is_killed(
    *, count: int, client: OpenAI, project: Project, sandbox: Sandbox, ledger: Ledger, tmp_path: Path, figures: Any
):
    write_lines(tmp_path / "in.jsonl", count)
    sandbox.turn(batches={"processing": {"mode": "uniform", "low_seconds": 1, "high_seconds": 4}})
    told: Any = {}
    with cluster(ledger, executors=2, allow_loopback_targets=True, batch_collect_seconds=1) as running:
        with (tmp_path / "in.jsonl").open("rb") as file:
            name = client.files.create(file=file, purpose="batch").id
        made = client.batches.create(
            input_file_id=name, endpoint="/v1/chat/completions", completion_window="24h", timeout=600
        )
        kills = 0
        for what, has_come in moments(count):
            wait_for(has_come, seconds=300, what=what)
            kill_all(running)
            kills += 1
        told = wait_for(lambda: ended(client, made.id), seconds=1_800, what="the end of the batch")
    assert (told.status, told.request_counts.completed) == ("completed", count)
    rows = [json.loads(row) for row in client.files.content(told.output_file_id, timeout=600).iter_lines()]
    assert [row["custom_id"] for row in rows] == [f"row-{number}" for number in range(count)]
    assert all(row["response"]["body"]["choices"] for row in rows)
    assert not DeadLetter.objects.exists()
    bill = sandbox.billing()
    assert (bill["prompts_paid_again"], bill["custom_ids_paid_again"]) == (0, 0), bill
    ways = Counter(Job.objects.values_list("via", flat=True))
    figures(f"{count:,} lines, {kills} times all workers killed; {ways['batch']:,} by batch, none paid twice")


def ended(client: OpenAI, batch: str) -> Any:
    told = client.batches.retrieve(batch)
    return told if told.status in ("completed", "failed", "cancelled") else None
