"""The programs of examples/ run as their page says, against a web process, a worker and the local providers."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from demo import language_model, sheets, usage
from jobs.models import Job
from queueops.tenancy.models import ProducerKey, Scope
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support.processes import ROOT, database_url, manage
from tests.support.sandbox import Sandbox

EXAMPLES = ROOT / "examples"
WORKER = {
    "QUEUEOPS_WORKERS": "1",
    "QUEUEOPS_EXTRA_APPS": "examples.newsletter",
    "QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on",
    "QUEUEOPS_BATCH_COLLECT_SECONDS": "0.5",
    "QUEUEOPS_BATCH_POLL_SECONDS": "1",
}
Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run(transactional_db: None, sandbox: Sandbox, tmp_path: Path) -> Iterator[Run]:
    """Run an example by its file's name, in a directory of its own, as what `make run` starts would have it."""
    project = make_project("demo")
    sheets.ensure_credential(project, sandbox.url)
    language_model.ensure_credentials(project, sandbox.url)
    usage.ensure_usage(project.pk, actor="user:1", at=timezone.now())
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 0.2}})
    _, key = ProducerKey.issue(project, name="examples", scopes=[Scope.READ, Scope.SUBMIT, Scope.USAGE])
    with web_process() as (address, _), manage("qcluster", environ=WORKER) as worker:
        worker.wait_for_output("is ready", seconds=60)

        def carry_out(name: str, *arguments: Any) -> CompletedProcess[str]:
            return told_by(
                EXAMPLES / name,
                *arguments,
                cwd=tmp_path,
                environ={
                    "QUEUEOPS_KEY": key,
                    "QUEUEOPS_URL": address,
                    "MODEL_URL": sandbox.url,
                    "PYTHONPATH": str(ROOT / "clients/python/src"),
                },
            )

        yield carry_out


def told_by(*command: Any, cwd: Path, environ: dict[str, str]) -> CompletedProcess[str]:
    told = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told


def test_the_rows_of_a_file_have_answers_in_their_order_and_each_is_asked_once(run: Run, sandbox: Sandbox, tmp_path):
    first = run("extract_from_csv.py")
    second = run("extract_from_csv.py", EXAMPLES / "tickets.csv", "again.csv")
    assert first.stdout == "6 of 6 rows answered, in answers.csv\n"
    assert second.stdout == "6 of 6 rows answered, in again.csv\n"
    answers = (tmp_path / "answers.csv").read_text()
    assert (tmp_path / "again.csv").read_text() == answers
    rows = list(csv.DictReader(answers.splitlines()))
    assert [row["ticket"] for row in rows] == [str(number) for number in range(1, 7)]
    assert all(row["product"] and row["complaint"] and not row["error"] for row in rows)
    assert len(sandbox.calls(provider="openai")) == 6


def test_a_nightly_sync_writes_each_row_once_a_day_in_few_calls(run: Run, sandbox: Sandbox):
    for _ in range(2):
        assert run("sync_to_sheets.py").stdout == "6 of 6 rows are in the spreadsheet example-stock\n"
    assert Job.objects.filter(kind="google_sheets.values_update").count() == 6
    assert len(sandbox.calls(provider="google_sheets")) == 1


def test_what_has_time_goes_by_a_batch_and_what_has_not_goes_live(run: Run, sandbox: Sandbox):
    assert run("batch_by_deadline.py", 36, 10).stdout.endswith("\n10 went by a batch\n")
    assert run("batch_by_deadline.py", 1, 2).stdout.endswith("\n2 went live\n")
    [batch] = sandbox.batches(provider="openai")
    assert len(sandbox.batch_lines(batch["id"])) == 10


def test_an_app_counts_the_tokens_of_each_of_its_users(run: Run):
    told = run("count_tokens.py").stdout
    assert told.endswith("\nexact\n")
    assert told.count("are counted") == 3


@pytest.mark.usefixtures("run")
def test_a_django_apps_tasks_run_as_jobs():
    environ = {
        "DATABASE_URL": database_url(),
        "QUEUEOPS_EXTRA_APPS": "examples.newsletter",
        "QUEUEOPS_DATA_DIR": str(settings.QUEUEOPS.data_dir),
    }
    told = told_by("manage.py", "send_newsletter", 7, cwd=ROOT, environ=environ)
    assert told.stdout.splitlines() == [f"Dear {name}, this is issue 7." for name in ("Ada", "Ben", "Cleo", "Dan")]
