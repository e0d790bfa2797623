"""`queueops run`: from a file of rows to a file of answers, in their order, each question asked once."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from demo import language_model
from jobs.models import Batch, Executor, Job
from queueops_client.cli.files import BadFile
from queueops_client.cli.rows import rows_of, written
from tests.client.commands import QUEUEOPS
from tests.factories import make_project
from tests.support.cases import every_case
from tests.support.processes import manage, wait_for
from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)

SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "note": {"type": "string"}},
    "required": ["total", "note"],
    "additionalProperties": False,
}
ASK = ["--model", "small-1", "--credential", "demo-openai"]
WORKER = {"QUEUEOPS_WORKERS": "1", "QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on"}


@pytest.fixture
def model(key: str, sandbox: Sandbox) -> Sandbox:
    """A credential for a language model without quotas."""
    language_model.ensure_credentials(make_project("acme"), sandbox.url)
    sandbox.turn(openai={"requests_per_minute": None, "tokens_per_minute": None})
    return sandbox


@pytest.fixture
def worker(model: Sandbox) -> Iterator[Any]:
    with manage("qcluster", environ=WORKER) as running:
        running.wait_for_output("is ready", seconds=60)
        yield running


def table(path: Path, rows: int) -> Path:
    lines = ["id;text", *(f'{number};"invoice ""{number}"", {{brace}}"' for number in range(rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("worker")
def test_rows_come_out_with_their_answers_in_their_order_and_are_asked_once(command, model, tmp_path):
    table(tmp_path / "in.csv", 20)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    arguments = ["run", "in.csv", *ASK, "--prompt", "Total of {text} as {{json}}?", "--schema", "schema.json", "--yes"]
    code, out, err = command(*arguments)
    assert code == 0, err
    assert "20 of 20 rows answered, in in.answers.csv" in out
    found = read(tmp_path / "in.answers.csv")
    assert [row["id"] for row in found] == [str(number) for number in range(20)]
    assert found[3] == {"id": "3", "text": 'invoice "3", {brace}', "total": "7.5", "note": "fox", "error": ""}
    assert Job.objects.earliest("pk").payload["prompt"].endswith(" as {json}?")
    (tmp_path / "in.answers.csv").unlink()
    assert "All 20 questions were asked before." in command(*arguments)[1]
    assert read(tmp_path / "in.answers.csv") == found
    assert len(model.calls(provider="openai")) == 20
    assert command(*arguments, "--name", "again")[0] == 0
    assert len(model.calls(provider="openai")) == 40


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("count", "kills_a_worker"),
    [pytest.param(400, False, id="short"), pytest.param(10_000, True, id="long", marks=pytest.mark.soak)],
)
def test_a_run_that_is_killed_goes_on_where_it_stopped(environ, model, tmp_path, *, figures, count, kills_a_worker):
    table(tmp_path / "in.csv", count)
    model.turn(latency={"mode": "fixed", "milliseconds": 20})
    asked = [*QUEUEOPS, "run", "in.csv", *ASK, "--prompt", "Sum up: {text}", "--out", "out.ndjson", "--yes"]
    began = time.monotonic()
    first = subprocess.Popen(asked, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: len(model.calls(provider="openai")) >= count // 4, what="a quarter of the answers", seconds=600)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not (tmp_path / "out.ndjson").exists()
    slots = 0
    if kills_a_worker:
        executor = Executor.objects.get(role=Executor.Role.GENERAL)
        slots = executor.slots
        os.kill(executor.pid, signal.SIGKILL)
    second = subprocess.run(asked, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert [row["id"] for row in rows] == [str(number) for number in range(count)]
    assert all(row["answer"] and not row["error"] for row in rows)
    calls = len(model.calls(provider="openai"))
    assert count <= calls <= count + slots  # what a killed worker had asked is asked again
    assert not list(tmp_path.glob(".*.part"))
    figures(f"{count:,} rows in {time.monotonic() - began:.0f} s, {calls:,} calls")


@pytest.mark.usefixtures("worker")
def test_rows_without_an_answer_say_why_and_the_command_tells(command, model, tmp_path):
    model.turn(openai={"context_tokens": {"small-1": 500}})
    (tmp_path / "docs").mkdir()
    for name, size in (("a.txt", 40), ("b.txt", 4_000), (".hidden", 40)):
        (tmp_path / "docs" / name).write_text("word " * size)
    code, out, err = command("run", "docs", *ASK, "--prompt", "@ask.txt", "--yes", "--out", "out.csv")
    assert (code, "ask.txt" in err) == (1, True), "there is no such file"
    (tmp_path / "ask.txt").write_text("Sum up {text}")
    code, out, err = command("run", "docs", *ASK, "--prompt", "@ask.txt", "--yes", "--out", "out.csv")
    assert code == 3
    assert "1 of 2 rows answered" in out
    assert "Not answered: 1 context_too_long." in err
    assert [(row["file"], row["error"]) for row in read(tmp_path / "out.csv")] == [
        ("a.txt", ""),
        ("b.txt", "context_too_long"),
    ]


@every_case(
    ("given", "arguments", "words"),
    [
        ("id,text\n1,a\n", ["--prompt", "{txt}"], "Row 2 has no column 'txt'; it has 'id', 'text'."),
        ("id,text\n1,a\n", ["--prompt", "{text"], "--prompt: expected '}' before end of string"),
        ("id,text\n1,a\n", ["--prompt", "{}"], "{name} stands for a column"),
        ("id,id\n1,a\n", ["--prompt", "{id}"], "Two columns are named 'id'."),
        ("id,error\n1,a\n", ["--prompt", "{id}"], "The rows have a column 'error'"),
        ("id,text\n", ["--prompt", "{id}"], "in.csv has no rows."),
        ("id,text\n1,a\n", ["--prompt", "{id}", "--schema", "in.csv"], "in.csv is not JSON"),
        ("id,text\n1,a\n", ["--prompt", "{id}", "--by", "soon"], "write 30m, 6h or 2d"),
        ("id,text\n1,a\n", ["--prompt", "{id}", "--out", "nowhere/out.csv"], "nowhere/out.csv cannot be written."),
        ("id,text\n1,a\n", ["--prompt", "{id}", "--credential", "none"], "none"),
        ("id,text\n1,a\n", ["--prompt", "{id}"], "Nobody is there to be asked; say --yes."),
        ("id,text\n1,a\n", ["--prompt", "{id}", "--max-price", "1"], "--max-price is 1. Nothing was submitted."),
    ],
)
@pytest.mark.usefixtures("model")
def test_wrong_input_is_told_with_its_place_and_nothing_is_submitted(command, given, arguments, words):
    Path("in.csv").write_text(given)
    code, out, err = command("run", "in.csv", *ASK, *arguments)
    told = re.sub(r"\s+", " ", out + err)
    assert code != 0, told
    assert words in told, told
    assert not Batch.objects.exists()


@pytest.mark.usefixtures("model")
def test_a_forecast_takes_as_large_a_file_as_a_batch(command, tmp_path):
    rows = [json.dumps({"id": number, "text": f"{number} " + "word " * 20_000}) for number in range(40)]
    (tmp_path / "in.ndjson").write_text("\n".join(rows))
    code, out, err = command("run", "in.ndjson", *ASK, "--prompt", "{text}", "--dry-run")
    assert code == 0, err
    assert "Nothing was submitted. 40 jobs would be made." in out


@every_case(
    ("wrote", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\n=1+1", "'\n=1+1"),
        ("-5", "-5"),
        ("-5 of them", "'-5 of them"),
        ("fox", "fox"),
        (-5, -5),
    ],
)
def test_a_text_of_a_model_is_never_a_formula(wrote, cell):
    from queueops_client.cli.rows import no_formula

    assert no_formula(wrote) == cell


def test_a_parquet_file_comes_out_as_one_with_its_types(command, tmp_path: Path, worker: Any):
    at = datetime(2026, 3, 2, 9, tzinfo=UTC)
    rows = {"id": [1, 2], "text": ["a", "b"], "at": [at, None], "price": [Decimal("1.10"), Decimal("2.00")]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "in.parquet")
    code, out, err = command(
        "run", str(tmp_path / "in.parquet"), "--prompt", "{id}: {text} {at} {price}", *ASK, "--yes"
    )
    assert code == 0, (out, err)
    found = pyarrow.parquet.read_table(tmp_path / "in.answers.parquet")
    assert found.column_names == [*rows, "answer", "error"]
    assert {name: found[name].to_pylist() for name in rows} == rows
    assert all(found["answer"].to_pylist())
    asked = [job.payload["prompt"] for job in Job.objects.order_by("pk")]
    assert asked == ['1: a "2026-03-02 09:00:00+00:00" "1.10"', '2: b null "2.00"']


def test_columns_without_one_type_become_text_and_a_broken_file_is_told(tmp_path: Path):
    target = str(tmp_path / "out.parquet")
    with written(target, ["mixed", "none"]) as write:
        for value in (1, "a", {"b": 2}, None):
            write({"mixed": value})
    assert [row for _, row in rows_of(target)] == [
        {"mixed": text, "none": None} for text in ("1", "a", '{"b": 2}', None)
    ]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(BadFile, match=r"bad\.parquet: "):
        rows_of(str(tmp_path / "bad.parquet"))


def test_a_header_is_read_as_spreadsheets_write_it(tmp_path: Path):
    headers = {b'"prompt\r\ntext",id': "prompt text", b'"Net, tax, total";id': "Net, tax, total"}
    for number, (header, name) in enumerate(headers.items()):
        file = tmp_path / f"{number}.csv"
        file.write_bytes(header + b"\r\n" + (b"3,5;1" if b";" in header else b"hello,1") + b"\r\n")
        [(place, row)] = rows_of(str(file))
        assert (place, list(row)) == ("Row 2", [name, "id"])


def test_half_of_a_surrogate_pair_in_a_row_does_not_cost_the_answers(tmp_path: Path):
    source, target = tmp_path / "rows.jsonl", str(tmp_path / "answers.jsonl")
    source.write_text('{"text": "cut \\ud83d"}\n')
    [(_, row)] = rows_of(str(source))
    for name in (target, str(tmp_path / "answers.csv")):
        with written(name, ["text"]) as write:
            write(row)
    assert rows_of(target) == [("Line 1", row)]
