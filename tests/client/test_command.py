"""The command `queueops` against the real server: in a terminal, in a pipe, and with bad input."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from jobs.features.dependencies.dependants import DependantsDuty
from jobs.models import Batch, Job
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.operate.pauses import pause_scope
from jobs.services.submit.spec import parse_spec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core.version import VERSION
from queueops_client import UsageTracker
from queueops_client.cli.rows import rows_of
from ratelimits.usage.allowances import set_allowance
from tests.api.conftest import SPEC
from tests.client.commands import QUEUEOPS, finish
from tests.client.proxy import Proxy
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs
from tests.support.processes import free_port, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

JOB = {"kind": SPEC["kind"], "payload": SPEC["payload"]}
UNKNOWN = "018f6a52-0000-7000-8000-000000000001"


def in_a_pipe(environ: dict[str, str], *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*QUEUEOPS, *arguments], env=environ, input=given, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_options_of_all_commands_may_stand_before_them(command, environ, monkeypatch, tmp_path):
    make_job()
    code, out, _ = command("--json", "status")
    assert (code, json.loads(out)["project"]["id"]) == (0, "acme")
    monkeypatch.setenv("QUEUEOPS_URL", "http://127.0.0.1:9")
    assert command("--url", environ["QUEUEOPS_URL"], "status")[0] == 0
    assert command("--url", "http://127.0.0.1:9", "status", "--url", environ["QUEUEOPS_URL"])[0] == 0
    (tmp_path / "key").write_text(environ["QUEUEOPS_KEY"])
    monkeypatch.delenv("QUEUEOPS_KEY")
    code, out, _ = command("--url", environ["QUEUEOPS_URL"], "--key-file", str(tmp_path / "key"), "--json", "status")
    assert (code, json.loads(out)["project"]["id"]) == (0, "acme")


class Terminal:
    """A process with a terminal of its own, 24 lines of 100."""

    def __init__(self, environ: dict[str, str], *arguments: str) -> None:
        self.raw = b""
        self.code: int | None = None
        self.pid, self._fd = pty.fork()
        if not self.pid:
            # As a shell does. A run in a shell's background ignores Ctrl-C, and what it starts would do so, too.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(QUEUEOPS[0], [*QUEUEOPS, *arguments], environ)  # noqa: S606
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            if select.select([self._fd], [], [], 0.05)[0]:
                try:
                    self.raw += os.read(self._fd, 65_536)
                except OSError:
                    break
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace"))

    def shows(self, pattern: str, *, seconds: float = 40.0) -> None:
        try:
            wait_for(lambda: re.search(pattern, self.text), seconds=seconds)
        except AssertionError:
            raise AssertionError(f"{pattern!r} is not in {self.text[-800:]!r}") from None

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ended(self) -> int:
        wait_for(lambda: self.code is not None, seconds=40, what=f"the end of {self.text[-400:]!r}")
        os.close(self._fd)
        return self.code or 0


# Submitting


def test_files_of_every_format_are_submitted(command, tmp_path: Path):
    lines, rows, document = tmp_path / "a.ndjson", tmp_path / "b.csv", tmp_path / "c.json"
    lines.write_text(f"{json.dumps(JOB)}\n\n{json.dumps({'payload': JOB['payload']})}\n")
    rows.write_text(
        "\ufeffpriority;payload.method;payload.url;payload.json:json;cost\n"
        'low;PUT;https://api.example.org/1;"{""a"": ""1;2""}";3\n'
        ";GET;https://api.example.org/2;;\n"
    )
    document.write_text(json.dumps({"jobs": [JOB] * 3}))
    for path, count in ((lines, 2), (rows, 2), (document, 3)):
        code, out, err = command("submit", str(path), "--kind", "http.request", "--name", path.name)
        assert (code, err) == (0, "")
        assert f"{count} jobs accepted" in out
        assert "queueops watch " in out
    first = Job.objects.get(batch__name="b.csv", priority="low")
    assert first.payload["json"] == {"a": "1;2"}
    assert first.cost == 3


def test_files_are_taken_as_spreadsheets_and_shells_write_them(command, tmp_path: Path):
    line, row = json.dumps(JOB), "http.request,GET,https://api.example.org/1"
    files = {
        "right.csv": f"kind,payload.method,payload.url,,\n{row},,\n,,,,\n".encode(),
        "sep.csv": f"sep=;\r\nkind;payload.method;payload.url\r\n{row.replace(',', ';')}\r\n".encode(),
        "true.csv": f"kind,payload.method,payload.url,payload.json:json\n{row.replace('GET', 'PUT')},TRUE\n".encode(),
        "wide.ndjson": f"{line}\r\n".encode("utf-16"),
        "wide.csv": f"kind,payload.method,payload.url\n{row}\n".encode("utf-16"),
        "list.ndjson": json.dumps([JOB], indent=2).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        code, out, err = command("submit", str(tmp_path / name))
        assert (code, err, "1 job accepted" in out) == (0, "", True), name
    assert Job.objects.filter(batch__name="", payload__json=True).count() == 1
    (tmp_path / "right.csv").write_text(f"kind,payload.method,payload.url,\n{row},lost\n")
    code, _, err = command("submit", str(tmp_path / "right.csv"))
    assert (code != 0, "Row 2 has a value in a column that the header does not name" in err) == (True, True)


def test_a_dry_run_tells_the_forecast_and_submits_nothing(command, tmp_path: Path):
    good, bad = tmp_path / "good.ndjson", tmp_path / "bad.ndjson"
    good.write_text(json.dumps(JOB) + "\n" + json.dumps(JOB))
    bad.write_text(json.dumps(JOB) + "\n" + json.dumps({"kind": "no.such"}))
    code, out, _ = command("submit", str(good), "--dry-run")
    assert code == 0
    assert "2 jobs would be made" in out
    assert re.search(r"http\.request +http:api\.example\.org +2", out)
    assert "no executor is running" in out
    code, out, err = command("submit", str(bad), "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["accepted"], told["rejected"]["count"], err) == (1, False, 1, "")
    code, out, _ = command("submit", str(bad), "--dry-run")
    assert (code, "The batch would be refused" in out, "Nothing was submitted. 1 job would" in out) == (1, True, False)
    code, out, err = command("submit", str(bad), "--dry-run", "--partial")
    assert (code, "line 2" in err, "Nothing was submitted. 1 job would be made" in out) == (0, True, True)
    bad.write_text(json.dumps({**JOB, "complete_by": "2020-03-02T09:00:00Z"}))
    code, _, err = command("submit", str(bad), "--dry-run")
    assert (code, "line 1" in err, "The deadline is over." in err) == (1, True, True)
    assert not Job.objects.exists()


def test_a_dry_run_refuses_a_callback_and_a_dependency_as_the_batch_does(command, tmp_path: Path):
    path = tmp_path / "good.ndjson"
    path.write_text(json.dumps(JOB))
    for options, named in (
        (("--on-finish", json.dumps({"kind": "http.request", "payload": {}})), "on_finish.payload.method"),
        (("--after", str(uuid4())), "no job or batch"),
    ):
        told, made = (command("submit", str(path), *options, *dry) for dry in (("--dry-run",), ()))
        assert told == made
        assert (told[0] != 0, named in told[2]) == (True, True), told
    assert command("submit", str(path), "--dry-run", "--on-finish", json.dumps(JOB))[0] == 0
    assert not Job.objects.exists()


def test_a_pipe_is_submitted_and_told_of_in_json_without_colours(environ):
    done = in_a_pipe(environ, "submit", "--json", given=f"{json.dumps(JOB)}\n" * 5)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["accepted"], told["error_count"]) == (5, 0)
    assert {
        "id",
        "accepted",
        "duplicates",
        "pending",
        "replaced",
        "error_count",
        "errors",
        "known",
        "known_batches",
        "url",
        "idempotency_key",
    } == set(told)
    plain = in_a_pipe(environ, "status", told["id"])
    assert "\x1b" not in plain.stdout
    assert "0 of 5" in plain.stdout


def test_refused_jobs_are_shown_with_their_lines(command, tmp_path: Path):
    path = tmp_path / "jobs.ndjson"
    path.write_text(f'{json.dumps(JOB)}\n{{"kind": "no.such"}}\n')
    code, out, err = command("submit", str(path))
    assert (code, out) == (1, "")
    assert "line 2" in err
    assert "no.such" in err
    code, out, err = command("submit", str(path), "--partial")
    assert code == 0
    assert "1 job accepted" in out
    assert "line 2" in err


def test_refused_jobs_are_shown_where_they_stand_in_the_file(command, tmp_path: Path):
    rows, lines = tmp_path / "jobs.csv", tmp_path / "jobs.ndjson"
    rows.write_text("kind,payload.method\nhttp.request,GET\n,\nhttp.request,GET\n")
    lines.write_text('\n\n{"kind": "no.such"}\n')
    for path, place in ((rows, "row 2 and 1 more: "), (lines, "line 3: ")):
        for options in ((), ("--dry-run",)):
            code, _, err = command("submit", str(path), *options)
            assert (code, place in err) == (1, True), err


REFUSED_FILES = [
    ("a.ndjson", '{"kind": "x"}\n{"kind"\n', "Line 2 is not JSON"),
    ("a.ndjson", "[1]\n", "Job 1: a job is a JSON object"),
    ("a.ndjson", '{"payload": {}}\n', "Line 1: the job names no kind"),
    ("a.ndjson", '{"kind": "x", "payload": {"n": NaN}}\n', "NaN"),
    ("a.ndjson", "[" * 100_000, "nested too deep"),
    ("a.ndjson", "", "empty_batch"),
    ("a.json", "{}", "neither a JSON list"),
    ("a.json", "[1", "not JSON"),
    ("a.csv", "", "no header"),
    ("a.csv", "kind\nx,y\n", "Row 2 has 2 cells"),
    ("a.csv", 'kind,payload.a:json\nx,"{"\n', "Row 2, column payload.a:json is not JSON"),
    ("a.csv", "kind,payload.a,payload.a.b\nx,1,2\n", "another column has set"),
]


def test_files_that_cannot_be_used_are_refused_before_anything_is_sent(command):
    accepted = []
    for name, content, words in REFUSED_FILES:
        Path(name).write_text(content)
        code, out, err = command("submit", name)
        if (code, out, words in err) != (1, "", True):
            accepted.append((content[:40], code, out, err))
    assert accepted == []
    assert not Job.objects.exists()


def test_what_cannot_be_read_is_named(command, tmp_path: Path):
    (tmp_path / "latin").write_bytes(b'{"kind": "\xe9"}')
    assert "is not UTF-8" in command("submit", str(tmp_path / "latin"))[2]
    assert "No such file" in command("submit", str(tmp_path / "missing"))[2]
    assert command("submit", str(tmp_path))[0] == 1


def test_a_lost_answer_names_the_key_that_makes_a_repeat_harmless(proxy: Proxy, tmp_path: Path, monkeypatch, command):
    path = tmp_path / "jobs.ndjson"
    path.write_text(json.dumps(JOB))
    monkeypatch.setattr("queueops_client.retry.Retry.pause_seconds", lambda *_, **__: None)
    proxy.cuts, proxy.cut_path = 1, "POST /api/v1/batches/"
    code, _, err = command("submit", str(path), "--url", proxy.url)
    assert code == 4
    [key] = re.findall(r"--idempotency-key (\S+)", err)
    wait_for(lambda: Job.objects.count() == 1, what="the job")
    assert command("submit", str(path), "--idempotency-key", key)[0] == 0
    assert Job.objects.count() == 1


CALLBACK = {"kind": JOB["kind"], "payload": {"method": "POST", "url": "https://api.example.org/done"}}


def test_a_batch_is_submitted_with_the_job_that_its_end_is_to_have_carried_out(command):
    Path("jobs.ndjson").write_text(f"{json.dumps(JOB)}\n" * 2)
    Path("done.json").write_text(f"\ufeff{json.dumps(CALLBACK)}\n")
    for number, given in enumerate(("@done.json", json.dumps(CALLBACK))):
        code, out, err = command("submit", "jobs.ndjson", "--on-finish", given, "--name", str(number))
        assert (code, err, "2 jobs accepted" in out) == (0, "", True)
        told = Batch.objects.get(name=str(number)).on_finish_job
        assert told is not None
        callback = Job.objects.get(pk=told)
        assert (callback.payload, callback.batch_id, callback.held) == (CALLBACK["payload"], None, True)


NO_CALLBACKS = [
    ("", "--on-finish is not JSON"),
    ('{"kind"', "--on-finish is not JSON"),
    ('{"kind": NaN}', "NaN is no number"),
    ("[" * 100_000, "--on-finish is nested too deep"),
    ("[]", "--on-finish: a job is a JSON object"),
    ('"done.json"', "--on-finish: a job is a JSON object"),
    ("@", "--on-finish @ names no file"),
    ("@missing.json", "missing.json: No such file or directory"),
    ("@list.json", "list.json: a job is a JSON object"),
    ("@latin.json", "latin.json is not UTF-8"),
    ("@.", ".: Is a directory"),
    ("{}", "on_finish.kind"),
    ('{"kind": "no.such"}', "on_finish.kind"),
    ('{"kind": "http.request", "payload": {}}', "on_finish.payload.url"),
    ('{"kind": "http.request", "delay_seconds": 5}', "on_finish.delay_seconds"),
    ('{"kind": "http.request", "colour": 5}', "on_finish.colour"),
]


def test_what_can_be_no_callback_is_told_and_nothing_is_submitted(command):
    Path("jobs.ndjson").write_text(json.dumps(JOB))
    Path("list.json").write_text("[1]")
    Path("latin.json").write_bytes(b'{"kind": "\xe9"}')
    accepted = []
    for given, words in NO_CALLBACKS:
        code, out, err = command("submit", "jobs.ndjson", "--on-finish", given)
        if (code, out, words in err) != (1, "", True) or Batch.objects.exists() or Job.objects.exists():
            accepted.append((given[:40], code, out, err))
    assert accepted == []


# Watching


def test_a_terminal_shows_bars_and_the_end(environ):
    batch = make_batch(name="import \x1b[31m7")
    jobs = make_jobs(4, batch=batch)
    terminal = Terminal(environ, "watch", str(batch.pk))
    terminal.shows(r"0\.0 %.*0 of 4(.|\s)*4 queued(.|\s)*live")
    finish(jobs[:2])
    terminal.shows(r"50\.0 %.*2 of 4(.|\s)*2 completed, 2 queued")
    finish(jobs[2:3])
    finish(jobs[3:], edge="fail")
    assert terminal.ended() == 3
    assert f"Batch {batch.pk} has ended: 3 completed, 1 failed." in terminal.text
    assert f"queueops dead-letters list --batch {batch.pk}" in terminal.text
    assert "\u2501" in terminal.text  # the bar
    assert b"\x1b[31m7" not in terminal.raw  # a name that would colour the terminal


def test_an_interruption_says_how_to_come_back(environ):
    batch = make_batch()
    make_job(batch=batch)
    terminal = Terminal(environ, "watch", str(batch.pk))
    terminal.shows("live")
    terminal.types("\x03")
    assert terminal.ended() == 130
    assert f"Come back with: queueops watch {batch.pk}" in terminal.text
    assert "Traceback" not in terminal.text


def test_a_pipe_gets_lines_and_json_every_update(environ):
    batch = make_batch()
    jobs = make_jobs(2, batch=batch)
    plain = subprocess.Popen([*QUEUEOPS, "watch", str(batch.pk)], env=environ, stdout=subprocess.PIPE, text=True)
    as_json = subprocess.Popen(
        [*QUEUEOPS, "watch", "--json", str(batch.pk)], env=environ, stdout=subprocess.PIPE, text=True
    )
    assert plain.stdout is not None
    assert as_json.stdout is not None
    first = plain.stdout.readline()
    updates = [json.loads(as_json.stdout.readline())]
    while not updates[-1]["live"]:
        updates.append(json.loads(as_json.stdout.readline()))
    finish(jobs)
    rest, _ = plain.communicate(timeout=60)
    more, _ = as_json.communicate(timeout=60)
    updates += [json.loads(line) for line in more.splitlines()]
    assert re.match(r"\d\d:\d\d:\d\d waiting, 0\.0 %, 0 of 2, 2 queued", first)
    assert rest.endswith(f"Batch {batch.pk} has ended: 2 completed.\n")
    assert "\x1b" not in first + rest
    assert (plain.returncode, as_json.returncode) == (0, 0)
    assert {update["kind"] for update in updates} <= {"state", "event"}
    assert {frozenset(update) for update in updates} == {frozenset({"kind", "live", "subject", "event", "problem"})}
    assert updates[-1]["subject"]["counts"]["completed"] == 2


def test_submitting_and_watching_ends_with_the_batch(environ, tmp_path: Path):
    path = tmp_path / "jobs.ndjson"
    path.write_text(json.dumps(JOB))
    terminal = Terminal(environ, "submit", str(path), "--watch")
    terminal.shows("live")
    finish(list(Job.objects.all()))
    assert terminal.ended() == 0
    terminal.shows("has ended: 1 completed")


def test_results_come_with_what_went_in_as_a_table_or_as_lines(command, tmp_path: Path):
    batch = make_batch()
    total = {"data": {"total": 2}}
    payload = json.dumps({**JOB["payload"], "json": {"a": [1, None]}})
    make_job(batch=batch, state=JobState.COMPLETED, idempotency_key="=k", payload=payload, result=total)
    make_job(batch=batch, state=JobState.FAILED, last_error_code="http_500")
    code, out, _ = command("results", str(batch.pk), "--with-input", "--column", "data.total")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["data.total"] for row in rows] == ["2", ""]
    assert (rows[0]["idempotency_key"], json.loads(rows[0]["payload.json"])) == ("'=k", {"a": [1, None]})
    assert list(rows[0])[:6] == [*("idempotency_key", "id", "state", "last_error_code", "cost_money"), "payload.method"]
    lines = [json.loads(line) for line in command("results", str(batch.pk), "--with-input")[1].splitlines()]
    assert (lines[0]["payload"], lines[0]["result"]) == (json.loads(payload), total)
    failed = command("results", str(batch.pk), "--with-input", "--failed")[1].splitlines()
    assert [json.loads(line)["last_error_code"] for line in failed] == ["http_500"]
    for name in ("t.csv", "t.tsv", "t.ndjson", "t.parquet"):
        assert command("results", str(batch.pk), "--with-input", "--out", str(tmp_path / name)) == (0, "", "")
    assert [row["payload"] for _, row in rows_of(str(tmp_path / "t.ndjson"))] == [one["payload"] for one in lines]
    typed = [row for _, row in rows_of(str(tmp_path / "t.parquet"))]
    assert [(row["payload.json"], row["cost_money"]) for row in typed] == [({"a": [1, None]}, None), (None, None)]
    for name, words in (("nowhere/t.csv", "cannot be written"), ("t.xlsx", "in which form"), ("t", "in which form")):
        code, _, err = command("results", str(batch.pk), "--out", str(tmp_path / name))
        assert (code, words in err) == (1, True)


def test_submitting_and_waiting_says_nothing_before_the_end_and_ends_as_the_batch(environ, tmp_path: Path):
    path = tmp_path / "jobs.ndjson"
    path.write_text(json.dumps(JOB))
    command = [*QUEUEOPS, "submit", str(path), "--wait"]
    plain = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    as_json = subprocess.Popen([*command, "--json"], env=environ, stdout=subprocess.PIPE, text=True)
    assert plain.stdout is not None
    assert as_json.stdout is not None
    first, told = plain.stdout.readline(), json.loads(as_json.stdout.readline())
    assert " 1 job accepted." in first
    finish([Job.objects.get(batch_id=told["id"])])
    failed = Job.objects.exclude(batch_id=told["id"]).get()
    cancel_jobs([failed.pk], actor="user:1", reason="not wanted")
    out, _ = plain.communicate(timeout=60)
    last, _ = as_json.communicate(timeout=60)
    assert re.fullmatch(r"Batch \S+ has ended: 1 cancelled\.\n", out)
    assert json.loads(last)["counts"]["completed"] == 1
    assert (plain.returncode, as_json.returncode) == (3, 0)


def test_a_file_that_is_submitted_again_is_followed_to_the_jobs_that_are_known(command, tmp_path: Path):
    path = tmp_path / "jobs.ndjson"
    path.write_text("\n".join(json.dumps({**JOB, "idempotency_key": f"k{number}"}) for number in range(2)))
    assert command("submit", str(path))[0] == 0
    first = Batch.objects.get()
    code, out, _ = command("submit", str(path), "--json")
    again = json.loads(out)
    assert (code, again["accepted"], again["known_batches"]) == (0, 0, [str(first.pk)])
    assert f"its jobs are in {first.pk}" in command("submit", str(path))[2]
    jobs = [json.loads(line)["id"] for line in command("results", again["id"])[1].splitlines()]
    assert jobs == [str(pk) for pk in Job.objects.order_by("pk").values_list("pk", flat=True)]


def test_a_watch_that_takes_too_long_ends_with_its_own_code(command):
    job = make_job()
    code, out, err = command("watch", str(job.pk), "--timeout", "1")
    assert code == 5
    assert "queued" in out
    assert "goes on" in err


# Looking and steering


def test_status_and_results_are_told_to_people_and_programs(command):
    batch = make_batch(name="b")
    make_job(batch=batch, state=JobState.COMPLETED, result={"row": 1})
    failed = make_job(batch=batch, state=JobState.FAILED, last_error_code="http_500", last_error_message="do\x1b[2Jwn")
    make_job(batch=batch)
    code, out, _ = command("status")
    assert (code, "1 completed, 1 failed, 1 queued" in out, str(batch.pk) in out) == (0, True, True)
    code, out, _ = command("status", str(failed.pk))
    assert code == 0
    assert "http_500: do\ufffd[2Jwn" in out
    assert json.loads(command("status", "--json", str(failed.pk))[1])["last_error_message"] == "do\x1b[2Jwn"
    told = json.loads(command("status", "--json")[1])
    assert (told["project"]["id"], told["batches"][0]["name"]) == ("acme", "b")
    code, out, _ = command("results", str(batch.pk))
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [row["state"] for row in rows]) == (0, ["completed", "failed", "queued"])
    assert rows[0]["result"] == {"row": 1}
    assert len(command("results", "--failed", str(batch.pk))[1].splitlines()) == 1


def test_results_are_a_table_for_spreadsheets(command):
    batch = make_batch(name="b")
    make_job(batch=batch, state=JobState.COMPLETED, result={"data": {"total": 7.5}, "text": "=1+1"})
    make_job(batch=batch, state=JobState.FAILED, last_error_code="http_500", idempotency_key="=2+2")
    code, out, _ = command("results", str(batch.pk), "--column", "data.total", "--column", "text")
    rows = list(csv.DictReader(out.splitlines()))
    assert (code, [(row["state"], row["data.total"], row["text"]) for row in rows]) == (
        0,
        [("completed", "7.5", "'=1+1"), ("failed", "", "")],
    )
    assert rows[1]["idempotency_key"] == "'=2+2"
    code, out, _ = command("results", str(batch.pk), "--csv", "--failed")
    assert [row["last_error_code"] for row in csv.DictReader(out.splitlines())] == ["http_500"]


def test_status_of_a_batch_says_what_holds_it(command):
    batch = make_batch()
    make_job(batch=batch)
    pause_scope("project", "acme", actor="user:1", reason="a release")
    code, out, _ = command("status", str(batch.pk))
    assert code == 0
    assert "held by" in out
    assert "project acme is paused: a release" in out


def test_nothing_is_cancelled_or_discarded_unless_somebody_says_so(command, environ):
    job, letter = make_job(), make_dead_letter()
    for arguments in (
        ("cancel", str(job.pk)),
        ("dead-letters", "requeue", str(letter.pk)),
        ("dead-letters", "discard", "--everything", "--reason", "x"),
    ):
        code, _, err = command(*arguments)
        assert code == 2
        assert "say --yes" in err
    terminal = Terminal(environ, "cancel", str(job.pk))
    terminal.shows("Cancel job .*queued.*y/N")
    terminal.types("n\n")
    assert terminal.ended() == 130
    job.refresh_from_db()
    letter.refresh_from_db()
    assert (job.status, letter.resolution) == ("queued", None)
    terminal = Terminal(environ, "cancel", str(job.pk))
    terminal.shows("y/N")
    terminal.types("y\n")
    assert terminal.ended() == 0
    job.refresh_from_db()
    assert job.status == "cancelled"


def test_dead_letters_are_listed_requeued_and_discarded(command):
    first, second = make_dead_letters(2, error_code="http_404", error_message="gone\x07")
    code, out, _ = command("dead-letters", "list", "--error-code", "http_404")
    assert (code, str(first.pk) in out, "http_404: gone\ufffd" in out) == (0, True, True)
    assert len(command("dead-letters", "list", "--json")[1].splitlines()) == 2
    code, out, err = command("dead-letters", "list", "--limit", "1")
    assert "more than these 1" in err
    code, out, _ = command("dead-letters", "requeue", str(first.pk), "--yes")
    assert (code, out) == (0, "1 dead letter done, 0 left alone.\n")
    code, out, _ = command("dead-letters", "discard", str(second.pk), "--reason", "gone", "--yes", "--json")
    assert json.loads(out) == {"moved": [str(second.pk)], "unmoved": []}
    assert command("dead-letters", "list")[1] == "There are none.\n"
    assert command("dead-letters", "requeue", "--everything", "--yes")[1] == "There are none.\n"


def test_what_waits_for_others_goes_on_when_it_is_told_to(command):
    first = make_job()
    spec = parse_spec({**JOB, "after": [str(first.pk)]})
    job = submit_job(spec, project_id="acme", actor="key:test").id
    batch = submit_batch([JOB] * 2, after=[first.pk], project_id="acme", actor="key:test").id
    code, out, err = command("go-on", str(job), "--reason", "it is enough")
    assert (code, out, err) == (0, f"{job} goes on.\n", "")
    code, out, _ = command("go-on", "--json", str(batch))
    assert (code, json.loads(out)["id"]) == (0, str(batch))
    assert set(AuditEntry.objects.filter(action="go_on").values_list("target", "reason")) == {
        (f"job {job}", "it is enough"),
        (f"batch {batch}", ""),
    }
    assert DependantsDuty().do() == 2
    assert not Job.objects.filter(held=True).exists()
    for one in (job, batch, first.pk):
        code, out, err = command("go-on", str(one))
        assert (code, out, "wrong_state" in err) == (1, "", True)


# Bad input


BAD_INPUT = [
    (["watch", "nonsense"], 1, "not an id"),
    (["watch", UNKNOWN], 1, "not_found"),
    (["watch", UNKNOWN, "--timeout", "-1"], 2, "--timeout"),
    (["watch"], 2, "Missing argument"),
    (["status", "../project"], 1, "not an id"),
    (["status", UNKNOWN], 1, "not_found"),
    (["results", UNKNOWN], 1, "not_found"),
    (["cancel", UNKNOWN, "--yes"], 1, "not_found"),
    (["go-on"], 2, "Missing argument"),
    (["go-on", "nonsense"], 1, "not an id"),
    (["go-on", UNKNOWN], 1, "not_found"),
    (["go-on", UNKNOWN, "--reason"], 2, "--reason"),
    (["submit", "--format", "xml"], 2, "--format"),
    (["submit", "--start-interval", "-1"], 2, "--start-interval"),
    (["dead-letters", "requeue"], 2, "--everything"),
    (["dead-letters", "requeue", "x", "--everything", "--yes"], 2, "--everything"),
    (["dead-letters", "requeue", "x", "--yes"], 1, "not an id"),
    (["dead-letters", "discard", UNKNOWN, "--yes"], 2, "--reason"),
    (["dead-letters", "discard", UNKNOWN, "--reason", "", "--yes"], 1, "reason"),
    (["dead-letters", "list", "--batch", "x"], 1, "invalid_query"),
    (["dead-letters", "list", "--limit", "0"], 2, "--limit"),
    (["dead-letters", "list", "--limit", "9" * 40], 2, "--limit"),
    (["audit", "--limit", "9" * 40], 2, "--limit"),
    (["dead-letters", "requeue", "--everything", "--spread", "nan", "--yes"], 2, "'nan' is no number of seconds"),
    (["submit", "--start-interval", "inf"], 2, "'inf' is no number of seconds"),
    (["watch", UNKNOWN, "--timeout", "1e400"], 2, "'1e400' is no number of seconds"),
    (["usage", "--outbox", "x" * 5000], 2, "The outbox cannot be opened: File name too long"),
    (["flush", "--outbox", "x" * 5000], 2, "The outbox cannot be opened: File name too long"),
    (["windows", "add", "--on", "sat,someday"], 2, "'someday' is no day"),
    (["allowance", "change", "--reason", "x"], 2, "Say what to change"),
    (["allowance", "add", "some"], 2, "is not a valid integer"),
    (["allowance", "add", "-1"], 2, "-1"),
    (["allowance", "delete", "--yes"], 2, "--reason"),
    (["allowance", "show"], 1, "no_allowance"),
    (["completion", "cmd"], 2, "bash"),
    (["usage"], 2, "--user"),
    (["usage", "--user", "x"], 1, "user_id"),
    (["flush", "--outbox", "/nowhere/outbox"], 2, "no outbox"),
    (["nonsense"], 2, "No such command"),
    (["status", "--url", "queue.example.org"], 2, "is not an address"),
    (["status", "--url", ""], 2, "QUEUEOPS_URL"),
    (["status", "--key-file", "/nowhere"], 2, "key file"),
]


def test_bad_input_ends_with_its_code_and_a_word_of_what_is_wrong(command):
    wrong = []
    for arguments, code, words in BAD_INPUT:
        ended, out, err = command(*arguments)
        if (ended, out, words in err, "Traceback" in err) != (code, "", True, False):
            wrong.append((arguments, ended, out, err))
    assert wrong == []


def test_an_outbox_that_cannot_be_looked_at_is_not_taken_for_none(command, tmp_path):
    loop = tmp_path / "outbox"
    loop.symlink_to(loop)
    for asked in ("usage", "flush"):
        ended, out, err = command(asked, "--outbox", str(loop))
        assert (ended, out) == (2, ""), asked
        assert "The outbox cannot be opened: Too many levels of symbolic links" in err, asked


BYTES = os.fsdecode(b"caf\xe9")


def test_an_argument_that_is_not_utf_8_is_told_by_its_number_before_anything_is_done(command, environ):
    for arguments in ((BYTES,), ("status", BYTES), ("submit", "-", "--name", BYTES), ("--url", BYTES)):
        told = (2, "", f"Error: Argument {len(arguments)} is not UTF-8.\n")
        assert command(*arguments) == told
    done = in_a_pipe(environ, "submit", BYTES, given=json.dumps(JOB))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "Error: Argument 2 is not UTF-8.\n")
    assert not Job.objects.exists()


def test_dead_letters_that_are_none_end_with_the_code_of_a_refusal(command):
    for arguments in (("requeue", UNKNOWN, "--yes"), ("discard", UNKNOWN, "--reason", "r", "--yes")):
        assert command("dead-letters", *arguments)[:2] == (1, "0 dead letters done, 1 left alone.\n")


def test_what_is_wrong_in_a_field_is_told_with_one_full_stop(command):
    Path("jobs.ndjson").write_text(f"{json.dumps(JOB)}\n")
    code, _, err = command("schedules", "add", "s", "60 * * * *", "jobs.ndjson")
    assert (code, ".. (" in err, ". (bad_schedule)" in err) == (1, False, True)


def test_errors_are_json_for_programs(command):
    code, out, err = command("status", "--json", UNKNOWN)
    assert (code, out) == (1, "")
    assert json.loads(err)["error"]["code"] == "not_found"
    code, _, err = command("status", "--json", "--url", "x")
    assert (code, json.loads(err)["error"]["code"]) == (2, "bad_configuration")


def test_a_key_comes_from_a_file_or_a_prompt_and_from_no_argument(command, environ, tmp_path: Path, monkeypatch):
    key = environ["QUEUEOPS_KEY"]
    monkeypatch.delenv("QUEUEOPS_KEY")
    code, _, err = command("status")
    assert (code, "set QUEUEOPS_KEY" in err) == (2, True)
    (tmp_path / "key").write_text(f"{key}\n")
    assert command("status", "--key-file", str(tmp_path / "key"))[0] == 0
    assert command("status", "--key", key)[0] == 2
    terminal = Terminal({name: value for name, value in environ.items() if name != "QUEUEOPS_KEY"}, "status")
    terminal.shows("Key:")
    terminal.types(f"{key}\n")
    assert terminal.ended() == 0
    assert "Project acme" in terminal.text
    assert key not in terminal.text


def test_a_wrong_key_and_a_server_that_is_away_have_codes_of_their_own(command, monkeypatch):
    monkeypatch.setattr("queueops_client.retry.Retry.pause_seconds", lambda *_, **__: None)
    assert command("status", "--url", f"http://127.0.0.1:{free_port()}")[0] == 4
    monkeypatch.setenv("QUEUEOPS_KEY", "qo_wrong")
    code, _, err = command("status")
    assert code == 1
    assert "invalid_key" in err
    assert "qo_wrong" not in err


def test_whoever_waits_for_a_server_that_is_away_hears_of_it_once(command, monkeypatch):
    def soon(*_: Any, repeat: int, **__: Any) -> float | None:
        return 0.0 if repeat < 6 else None

    monkeypatch.setattr("queueops_client.retry.Retry.pause_seconds", soon)
    away = ("--url", f"http://127.0.0.1:{free_port()}")
    code, out, err = command("status", *away)
    assert (code, out) == (4, "")
    assert err.count("Trying again, for up to 60 s") == 1
    assert json.loads(command("status", "--json", *away)[2])["error"]["code"] == "unreachable"


def test_whoever_reads_only_the_first_line_gets_no_complaint(environ):
    batch = make_batch()
    make_jobs(2_000, batch=batch)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*QUEUEOPS, "results", str(batch.pk)], env=environ, stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    with os.fdopen(reading) as lines:
        first = lines.readline()
    _, complaints = process.communicate(timeout=60)
    assert json.loads(first)["state"] == "queued"
    assert complaints == ""


def test_a_pipe_gets_utf_8_in_any_locale_and_no_character_ends_a_command(environ):
    batch, text = make_batch(), "Grüße 你好 😀"
    make_job(batch=batch, state=JobState.COMPLETED, result={"text": text})
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    told = {}
    for name, chosen in (("plain", locale), ("cp1252", {"PYTHONIOENCODING": "cp1252"})):
        for form in ("--json", "--csv"):
            command = [*QUEUEOPS, "results", str(batch.pk), form]
            done = subprocess.run(command, env={**environ, **chosen}, capture_output=True, timeout=60, check=False)
            told[name, form] = (done.returncode, done.stderr, text.encode() in done.stdout)
    assert {one: found[:2] for one, found in told.items()} == dict.fromkeys(told, (0, b""))
    assert {one for one, found in told.items() if found[2]} == {("plain", "--json"), ("plain", "--csv")}


def test_completion_is_printed_for_each_shell_and_needs_no_server(command, monkeypatch):
    monkeypatch.delenv("QUEUEOPS_URL")
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = command("completion", shell)
        assert (code, "_QUEUEOPS_COMPLETE" in out) == (0, True), shell


def test_without_its_extra_the_command_says_what_to_install(environ):
    code = "import sys; sys.modules['click'] = None; from queueops_client.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "The command queueops needs click and rich: pip install 'queueops-client[cli]'\n"


def test_the_projects_allowance_is_given_changed_shown_and_deleted(command):
    shown = "acme: {} tokens for each user and month of UTC, strict, reservations of 300 s.\n"
    assert command("allowance", "add", "500", "--unit", "tokens", "--reason", "the plan") == (0, shown.format(500), "")
    assert command("allowance", "change", "--quota", "900") == (0, shown.format(900), "")
    code, out, err = command("allowance", "change", "--policy", "record_overage")
    assert (code, "record_overage" in out, "Mind: From now on reservations pass the quota." in err) == (0, True, True)
    assert json.loads(command("allowance", "show", "--json")[1])["policy"] == "record_overage"
    code, _, err = command("allowance", "delete", "--reason", "over")
    assert (code, "Nobody is there to be asked; say --yes." in err) == (2, True)
    assert command("allowance", "delete", "--reason", "over", "--yes") == (0, "The allowance is deleted.\n", "")
    assert "no_allowance" in command("allowance", "show")[2]


def test_a_users_allowance_is_told_and_the_outbox_emptied(command, environ, tmp_path: Path):
    set_allowance(
        "acme",
        unit="tokens",
        quota=1_000,
        policy="strict",
        time_zone="UTC",
        reservation_seconds=300,
        actor="user:1",
        reason="",
    )
    path, away = tmp_path / "outbox", f"http://127.0.0.1:{free_port()}"
    key = environ["QUEUEOPS_KEY"]
    with (
        UsageTracker(away, key, user_id=UNKNOWN, path=path, policy="optimistic") as tracker,
        tracker.use(estimate=30) as used,
    ):
        used.tokens = 20
    code, out, _ = command("usage", "--user", UNKNOWN, "--outbox", str(path))
    assert (code, "0 of 1,000 tokens used" in out, "1 event to be sent" in out) == (0, True, True)
    code, out, _ = command("flush", "--outbox", str(path), "--json")
    assert (code, json.loads(out)) == (0, {"sent": 1, "rejected": 0, "pending": 0})
    told = json.loads(command("usage", "--user", UNKNOWN, "--outbox", str(path), "--json")[1])
    assert (told["standing"]["used"], told["outbox"]["pending"]) == (20, 0)


def test_it_tells_its_own_version_and_the_servers_without_a_key(command, environ, monkeypatch):
    own = metadata.version("queueops-client")
    monkeypatch.delenv("QUEUEOPS_KEY")
    assert command("version") == (0, f"client {own}\n", "")
    assert command("version", "--server") == (0, f"client {own}\nserver {VERSION}\n", "")
    assert json.loads(command("version", "--server", "--json")[1]) == {"client": own, "server": VERSION}
    assert command("--version")[1] == f"queueops, version {own}\n"
