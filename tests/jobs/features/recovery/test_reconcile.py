"""What logs and operators' lists make of rows: judged row by row, written once, refused where it is not understood."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from jobs.errors import NotPaused
from jobs.features.recovery import reconcile as service
from jobs.features.recovery.read_outcomes import read_outcomes
from jobs.features.recovery.reconcile import Discrepancy, compare, find_by_key, reconcile
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.explain.snapshots import project_counts
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.states import RUNNING, WAITING, JobState
from queueops.audit.models import AuditEntry
from tests.factories import make_batch, make_dead_letter, make_job, make_jobs
from tests.support.cases import every_case

WRITE = json.dumps({"method": "POST", "url": "http://127.0.0.1:9/"})
READ = json.dumps({"method": "GET", "url": "http://127.0.0.1:9/"})
PAST = "2020-01-01T00:00:00Z"
LATER_TOKEN = 10**15  # than of any claim here: new epochs begin far beyond the last

pytestmark = pytest.mark.django_db


@pytest.fixture
def paused() -> None:
    pause_scope("global", "", actor="user:1")


def line(job: Job | UUID, outcome: str = "", *, token: int = LATER_TOKEN, **facts: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"event": "ended" if outcome else "begun", "at": "2026-01-01T00:00:00+00:00"}
    job_id = job.pk if isinstance(job, Job) else job
    known |= {"job": str(job_id), "effect_key": str(job_id), "token": token, "kind": "http.request", "project": "acme"}
    return known | ({"outcome": outcome} if outcome else {}) | facts


def written(path: Path, lines: Iterable[Any], *, end: str = "") -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + end)
    return path


def found(*paths: Path) -> dict[UUID, Discrepancy]:
    outcomes = read_outcomes(paths)
    find_by_key(outcomes)
    return {one.id: one.finding for some in compare(outcomes) for one in some}


def run(*paths: Path, **options: Any) -> str:
    out = StringIO()
    call_command("reconcile", *map(str, paths), stdout=out, **options)
    return out.getvalue()


def lapsed(state: JobState, **fields: Any) -> Job:
    """A job in a state, whose lease is over where it has one, as a restored one's is."""
    return make_job(state=state, **fields, **({"lease_expires_at": PAST} if state in RUNNING else {}))


@every_case("state", sorted(WAITING | {JobState.IN_PROGRESS}), undone=True)
def test_what_was_completed_is_completed_with_its_result_and_nothing_else_is_moved(state, paused, tmp_path):
    job, other = lapsed(state, payload=WRITE), make_job(payload=WRITE)
    log = written(tmp_path / "a.ndjson", [line(job), line(job, "completed", result={"id": 7})])
    assert found(log) == {job.pk: Discrepancy.COMPLETE}
    run(log, apply=True, yes=True)
    after = Job.objects.get(pk=job.pk)
    assert (after.status, after.result, after.progress) == (JobState.COMPLETED, {"id": 7}, 100)
    event = JobEvent.objects.filter(job_id=job.pk).latest("id")
    assert event.data is not None
    assert (event.from_status, event.data["actor"], event.data["claim"]) == (state, "system:reconcile", LATER_TOKEN)
    assert Job.objects.get(pk=other.pk).status == JobState.QUEUED
    assert project_counts("acme")["completed"] == 1
    entry = AuditEntry.objects.get(action="reconcile")
    assert (entry.actor, entry.moved, entry.after) == ("system:reconcile", 1, {"complete": 1})
    events = JobEvent.objects.count()
    assert "0  completed" not in run(log, apply=True, yes=True)
    assert JobEvent.objects.count() == events


@every_case(
    ("row", "said", "finding"),
    [
        ((JobState.QUEUED, WRITE), ["begun"], Discrepancy.BURY),
        ((JobState.QUEUED, READ), ["begun"], Discrepancy.REPEAT),
        ((JobState.IN_PROGRESS, WRITE), ["begun"], Discrepancy.BURY),
        ((JobState.QUEUED, WRITE), ["begun", "part"], Discrepancy.BURY),
        ((JobState.QUEUED, WRITE), ["begun", "retry"], Discrepancy.AGAIN),
        ((JobState.QUEUED, WRITE), ["begun", "not_done"], Discrepancy.AGAIN),
        ((JobState.QUEUED, WRITE), ["begun", "failed"], Discrepancy.FAIL),
        ((JobState.RETRIED, WRITE), ["failed"], Discrepancy.FAIL),
        ((JobState.COMPLETED, WRITE), ["begun", "completed"], Discrepancy.KNOWN),
        ((JobState.COMPLETED, WRITE), ["begun", "failed"], Discrepancy.DIFFERS),
        ((JobState.CANCELLED, WRITE), ["begun", "completed"], Discrepancy.DIFFERS),
        ((JobState.CANCELLED, WRITE), ["begun"], Discrepancy.KNOWN),
    ],
    undone=True,
)
def test_a_row_and_what_is_said_of_it(row, said, finding, tmp_path):
    state, payload = row
    job = lapsed(state, payload=payload)
    lines = [line(job) if one == "begun" else line(job, one) for one in said]
    assert found(written(tmp_path / "a.ndjson", lines)) == {job.pk: finding}
    assert found(written(tmp_path / "a.ndjson", reversed(lines))) == {job.pk: finding}


def test_what_a_row_knows_of_earlier_claims_is_not_judged_by_the_log(tmp_path):
    """Its rescue, its retry, or a write that was refused: all before the restored moment."""
    job = make_job(payload=WRITE, fencing_token=50)
    assert found(written(tmp_path / "a.ndjson", [line(job, token=40)])) == {job.pk: Discrepancy.KNOWN}
    assert found(written(tmp_path / "a.ndjson", [line(job, "completed", token=40)])) == {job.pk: Discrepancy.KNOWN}
    assert found(written(tmp_path / "a.ndjson", [line(job, token=50)])) == {job.pk: Discrepancy.KNOWN}
    # Rescued after the restore, before this: its row has the token still.
    assert found(written(tmp_path / "a.ndjson", [line(job, "completed", token=50)])) == {job.pk: Discrepancy.COMPLETE}
    assert found(written(tmp_path / "a.ndjson", [line(job, token=51)])) == {job.pk: Discrepancy.BURY}


@every_case(
    ("later", "finding"),
    [
        ([], Discrepancy.BURY),
        (["retry"], Discrepancy.AGAIN),
        (["failed"], Discrepancy.FAIL),
        (["completed"], Discrepancy.COMPLETE),
    ],
    undone=True,
)
def test_a_failure_after_which_a_fallback_began_another_call_is_not_the_end(later, finding, tmp_path):
    job = make_job(payload=WRITE)
    lines = [line(job), line(job, "failed"), *(line(job, one, token=LATER_TOKEN + 9) for one in ["", *later])]
    assert found(written(tmp_path / "a.ndjson", lines)) == {job.pk: finding}
    assert found(written(tmp_path / "a.ndjson", reversed(lines))) == {job.pk: finding}


def test_a_completed_call_is_the_end_although_another_executor_began_it_anew(tmp_path):
    job = make_job(payload=WRITE)
    lines = [line(job), line(job, "completed"), line(job, token=LATER_TOKEN + 9)]
    assert found(written(tmp_path / "a.ndjson", lines)) == {job.pk: Discrepancy.COMPLETE}


def test_a_job_whose_lease_lasts_is_its_executors(paused, tmp_path):
    job = make_job(state=JobState.IN_PROGRESS, payload=WRITE)
    log = written(tmp_path / "a.ndjson", [line(job, "completed")])
    assert found(log) == {job.pk: Discrepancy.RUNS}
    run(log, apply=True, yes=True)
    assert Job.objects.get(pk=job.pk).status == JobState.IN_PROGRESS


def test_unknown_ends_and_failures_become_dead_letters_that_say_why(paused, tmp_path):
    unknown, running = lapsed(JobState.QUEUED, payload=WRITE), lapsed(JobState.IN_PROGRESS, payload=WRITE)
    failed = make_job(payload=WRITE)
    lines = [line(unknown), line(running), line(failed, "failed", error_code="http_400", message="malformed")]
    run(written(tmp_path / "a.ndjson", lines), apply=True, yes=True)
    letters = {one.job_id: (one.error_code, one.error_message) for one in DeadLetter.objects.all()}
    assert letters.pop(failed.pk) == ("http_400", "malformed")
    assert {code for code, _ in letters.values()} == {"outcome_unknown"}
    assert letters.keys() == {unknown.pk, running.pk}
    assert project_counts("acme")["failed"] == 3


def test_a_dead_letter_that_the_sweep_wrote_is_closed_where_the_call_was_completed(paused, tmp_path):
    letter, other = make_dead_letter(error_code="outcome_unknown"), make_dead_letter(error_code="http_400")
    log = written(tmp_path / "a.ndjson", [line(letter.job_id, "completed"), line(other.job_id, "completed")])
    assert found(log) == {letter.job_id: Discrepancy.CLOSE, other.job_id: Discrepancy.DIFFERS}
    assert "1 dead letters discarded" in run(log, apply=True, yes=True)
    assert list(DeadLetter.objects.open()) == [other]


def test_an_operators_word_counts_more_than_a_log_and_goes_by_id_or_effect_key(paused, tmp_path):
    jobs = [make_job(payload=WRITE) for _ in range(5)]
    Job.objects.filter(pk=jobs[1].pk).update(effect_key="order-7")
    log = written(tmp_path / "a.ndjson", [line(job) for job in jobs])
    (tmp_path / "list.csv").write_text(
        "job_id,effect_key,outcome,result\n"
        f'{jobs[0].pk},,completed,"{{""a"": 1}}"\n'
        ",order-7,completed,plain words\n"
        f"{jobs[2].pk},,not_done,\n"
        ",nobody,completed,\n"
    )
    words = written(tmp_path / "words.ndjson", [{"job_id": str(jobs[3].pk), "outcome": "failed"}])
    assert list(found(log, tmp_path / "list.csv", words).values()) == [
        Discrepancy.COMPLETE,
        Discrepancy.COMPLETE,
        Discrepancy.AGAIN,
        Discrepancy.FAIL,
        Discrepancy.BURY,
    ]
    told = run(log, tmp_path / "list.csv", words, apply=True, yes=True)
    assert "1 effect keys are of no job here: nobody" in told
    assert [Job.objects.get(pk=job.pk).result for job in jobs[:2]] == [{"a": 1}, "plain words"]
    assert dict(DeadLetter.objects.values_list("job_id", "error_code")) == {
        jobs[3].pk: "failed_elsewhere",
        jobs[4].pk: "outcome_unknown",
    }


def test_torn_and_foreign_lines_are_told_and_keep_nothing_from_being_read(tmp_path):
    job = make_job(payload=WRITE)
    written(tmp_path / "a.ndjson", [line(job), {"hello": 1}, [], line(job, "exploded")], end='{"event": "end')
    (tmp_path / "b.ndjson").write_bytes(json.dumps(line(job, "completed")).encode() + b"\n\0\0\0\0\n\xff\xfe\n")
    told = run(tmp_path)
    assert "2 lines tell of 1 jobs" in told
    assert "1 files end amid a line" in told
    assert "5 lines are neither" in told
    assert f"{tmp_path / 'a.ndjson'}:2" in told
    assert "1  completed, and waits here" in told


@every_case(
    ("given", "complaint"),
    [
        (("a.ndjson", "hello\n"), "has no line of an outcome log"),
        (("a.csv", "job_id,outcome\n{id},done\n"), "a.csv:2: outcome is one of completed, failed, unknown, not_done"),
        (("a.csv", "job,outcome\n{id},completed\n"), "must have a first line with the columns"),
        (("a.csv", ""), "it has none"),
        (("a.csv", "job_id,outcome\nseven,completed\n"), "'seven' is no job's id"),
        (("a.csv", "job_id,effect_key,outcome\n{id},x,completed\n"), "a job_id or an effect_key"),
        (("a.csv", "job_id,outcome\n{id},completed\n{id},failed\n"), "a.csv:3: an earlier line says otherwise"),
        (("a.csv", "job_id,outcome,result\n{id},failed,x\n"), "only what is completed has a result"),
        (("a.csv", "job_id,outcome\n{id},completed,extra\n"), "means nothing"),
        (("a.ndjson", '{{"job_id": "{id}", "outcome": "completed", "results": 1}}\n'), "results means nothing"),
        (("a.ndjson", '{{"job_id": "{id}", "outcome": ["completed"]}}\n'), "outcome is one of"),
    ],
    undone=True,
)
def test_a_wrong_file_is_refused_with_its_line_and_nothing_is_done(given, complaint, paused, tmp_path):
    name, content = given
    job = make_job()
    (tmp_path / name).write_text(content.format(id=job.pk))
    with pytest.raises(CommandError) as refusal:
        run(tmp_path / name, apply=True, yes=True)
    assert complaint in str(refusal.value)
    assert Job.objects.get(pk=job.pk).status == JobState.QUEUED


def test_files_that_are_not_there_are_named(tmp_path):
    for path, complaint in ((tmp_path / "x", "There is no"), (tmp_path, "has no *.ndjson")):
        with pytest.raises(CommandError) as refusal:
            run(path)
        assert complaint in str(refusal.value)


def test_what_was_cut_off_goes_on_and_stops_where_the_pause_is_taken_away(paused, tmp_path, monkeypatch):
    monkeypatch.setattr(service, "RECONCILED_AT_ONCE", 10)
    batch = make_batch()
    jobs = make_jobs(30, batch=batch, payload=WRITE)
    outcomes = read_outcomes([written(tmp_path / "a.ndjson", [line(job, "completed") for job in jobs])])
    steps = reconcile([job.pk for job in jobs], outcomes)
    assert next(steps) == {Discrepancy.COMPLETE: 10}
    resume_scope("global", "", actor="user:1")
    with pytest.raises(NotPaused):
        next(steps)
    assert Job.objects.filter(status=JobState.COMPLETED).count() == 10
    run(tmp_path / "a.ndjson", apply=True, yes=True, force=True)
    assert Job.objects.filter(status=JobState.COMPLETED).count() == 30
    assert sum(AuditEntry.objects.filter(action="reconcile").values_list("moved", flat=True)) == 30


def test_nothing_is_changed_unasked_and_every_job_is_listed(paused, tmp_path):
    job, gone = make_job(payload=WRITE), uuid4()
    log = written(tmp_path / "a.ndjson", [line(job, "completed"), line(gone, "completed", kind="=evil")])
    with pytest.raises(CommandError, match="Nobody is there to ask"):
        run(log, apply=True)
    run(log, list=tmp_path / "all.csv")
    assert Job.objects.get(pk=job.pk).status == JobState.QUEUED
    listed = (tmp_path / "all.csv").read_text().splitlines()
    assert f"{gone},not in this database,'=evil,acme,{gone}" in listed
    assert any(text.startswith(f'{job.pk},"completed, and waits here"') for text in listed)
