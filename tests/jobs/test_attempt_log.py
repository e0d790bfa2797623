"""What a handler logs is kept with its attempt: bounded, masked, its own alone, and shown to people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.urls import reverse

from jobs.executor.attempt_log import FIRST_LINES, KEEPER, LAST_LINES, AttemptLog, current_log
from jobs.executor.loop import HandlerLoop
from jobs.handlers import registry
from jobs.handlers.registry import Coalesce, Continue, Done, RunningJob, handler
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.finish.outcomes import GivenBack, Outcome, Succeeded
from jobs.states import JobState
from jobs.testing import drain
from jobs.tracebacks import MAX_LINE
from queueops.tenancy.models import ProducerKey, Project, Scope
from queueops.tenancy.secrets.credentials import OpenCredential
from tests.factories import make_job
from tests.support.executing import Driven, Number, claimed, executing
from tests.support.people import signed_in
from tests.support.processes import wait_for

logger = logging.getLogger("an.app")
SECRET = "sk-live-51H8canary-0042"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind="test.says", service="test", payload=Number)
    async def says(job: RunningJob[Number]) -> Done:
        job.log("asked for page 3")
        await asyncio.sleep(0)
        logger.warning("page %s is empty, token=%s", 3, SECRET)
        logging.getLogger("jobs.executor.pump").warning("ours")
        return Done()

    @handler(kind="test.says_in_a_thread", service="test", payload=Number, idempotent=True)
    def says_in_a_thread(job: RunningJob[Number]) -> Done:
        job.log("in a thread")
        logger.error("there, too")
        return Done()

    @handler(kind="test.says_and_fails", service="test", payload=Number)
    async def says_and_fails(job: RunningJob[Number]) -> Done:
        job.log(f"{HOSTILE} with {SECRET}")
        raise LookupError("no rate")

    @handler(kind="test.says_a_part", service="test", payload=Number)
    async def says_a_part(job: RunningJob[Number]) -> Continue:
        job.log("the first half")
        return Continue({"half": 1}, "half")

    @handler(kind="test.shows_its_key", service="test", payload=Number)
    async def shows_its_key(job: RunningJob[Number]) -> Done:
        assert job.credential is not None
        logger.warning("signed with %s", job.credential.secret["key"])
        return Done()

    @handler(kind="test.cannot_say", service="test", payload=Number)
    async def cannot_say(job: RunningJob[Number]) -> Done:
        logger.warning("nul \0 and half a pair \ud800")
        return Done()

    @handler(kind="test.together", service="test", payload=Number, coalesce=Coalesce(key=lambda payload: "one"))
    async def together(jobs: Sequence[RunningJob[Number]]) -> list[Done]:
        logger.warning("a call for %s", len(jobs))
        for job in jobs:
            job.log(f"row {job.payload.n}")
        return [Done() for _ in jobs]


@pytest.fixture
def driven(handlers: None) -> Iterator[Driven]:
    loop = HandlerLoop(slots=4, wake=lambda: None)
    loop.start()
    yield Driven(loop)
    loop.stop()


def said(outcome: Outcome) -> list[tuple[str, str]]:
    return [(level, text) for _, level, text in outcome.log]


def test_its_own_lines_are_kept_and_neither_ours_nor_secrets(driven: Driven):
    [done] = driven.run(claimed("test.says"))
    assert isinstance(done, Succeeded)
    assert [level for level, _ in said(done)] == ["INFO", "WARNING"]
    assert said(done)[0] == ("INFO", "asked for page 3")
    assert said(done)[1][1].startswith("page 3 is empty, token=")
    assert SECRET not in str(done.log)
    assert all(at >= 0 for at, _, _ in done.log)


@pytest.mark.parametrize(
    ("kind", "kept", "lines"),
    [
        ("test.says_in_a_thread", Succeeded, [("INFO", "in a thread"), ("ERROR", "there, too")]),
        ("test.says_a_part", GivenBack, [("INFO", "the first half")]),
    ],
)
def test_lines_go_with_whatever_the_attempt_ends_in(driven: Driven, kind: str, kept: type, lines: list[Any]):
    [outcome] = driven.run(claimed(kind))
    assert isinstance(outcome, kept)
    assert said(outcome) == lines


def test_attempts_side_by_side_keep_their_own(driven: Driven):
    outcomes = driven.run(*(claimed("test.says") for _ in range(4)))
    assert [len(outcome.log) for outcome in outcomes] == [2] * 4


def test_a_credentials_secret_is_masked(driven: Driven):
    opened = OpenCredential(name="own", service="test", secret={"key": "plainwords"})
    driven.loop.carry_out([claimed("test.shows_its_key")._replace(credential="own")], {"own": opened})

    def has_ended() -> bool:
        driven.collect()
        return bool(driven.outcomes)

    wait_for(has_ended, what="the job's end")
    assert "signed with" in str(driven.outcomes[0].log)
    assert "plainwords" not in str(driven.outcomes[0].log)


def test_of_a_call_for_several_jobs_each_has_its_own_and_the_first_the_calls(driven: Driven):
    jobs = [claimed("test.together", f'{{"n": {number}}}')._replace(coalesce_key="one") for number in range(3)]
    jobs = [job._replace(group=jobs[0].id) for job in jobs]
    outcomes = {outcome.job.id: outcome for outcome in driven.run(*jobs)}
    assert [said(outcomes[job.id]) for job in jobs] == [
        [("WARNING", "a call for 3"), ("INFO", "row 0")],
        [("INFO", "row 1")],
        [("INFO", "row 2")],
    ]


def test_the_first_and_the_last_lines_are_kept_and_the_number_of_the_others():
    log = AttemptLog()
    for number in range(1000):
        log.add("INFO", f"line {number}")
    log.add("INFO", "x" * 10_000 + "\nand more")
    kept = [text for _, _, text in log.kept()]
    assert kept[:FIRST_LINES] == [f"line {number}" for number in range(FIRST_LINES)]
    assert kept[FIRST_LINES] == f"{1001 - FIRST_LINES - LAST_LINES} lines left out"
    assert kept[-2] == "line 999"
    assert len(kept) == FIRST_LINES + LAST_LINES + 1
    assert len(kept[-1]) == MAX_LINE + 1


@pytest.fixture
def letter(handlers: None, db: None) -> DeadLetter:
    """Of a job that a real executor carried out and whose handler logged before it failed."""
    job = make_job(kind="test.says_and_fails", payload="{}")
    drain()
    return DeadLetter.objects.get(job_id=job.pk)


def test_it_stands_with_the_attempt_on_the_pages_and_keys_are_not_shown_it(letter: DeadLetter):
    operator = signed_in("operator")
    pages = [
        reverse("admin:jobs_job_change", args=[letter.job_id]),
        reverse("admin:jobs_deadletter_change", args=[letter.pk]),
    ]
    for page in pages:
        shown = operator.get(page).content.decode()
        assert "&lt;script&gt;alert(1)&lt;/script&gt; with" in shown, page
        assert HOSTILE not in shown
        assert SECRET not in shown
    assert "Newest, with traceback and log" in operator.get(reverse("admin:jobs_deadletter_groups")).content.decode()
    key = ProducerKey.issue(Project.objects.get(pk="acme"), name="own", scopes=list(Scope.values))[1]
    for address in (f"/api/v1/jobs/{letter.job_id}/events/", f"/api/v1/dead-letters/{letter.pk}/"):
        assert "alert(1)" not in operator.get(address, headers={"Authorization": f"Bearer {key}"}).content.decode()
        assert "alert(1)" in operator.get(f"{address}?project=acme").content.decode()


def test_a_line_whose_arguments_do_not_fit_raises_nothing(capsys: pytest.CaptureFixture[str]):
    current_log.set(AttemptLog())
    record = logging.LogRecord("an.app", logging.WARNING, "app.py", 1, "%d of them", ("many",), None)
    KEEPER.emit(record)
    assert "Logging error" in capsys.readouterr().err
    current_log.set(None)


def test_what_the_database_would_refuse_fails_no_job(handlers: None, transactional_db: None):
    jobs = [make_job(kind=kind, payload="{}") for kind in ("test.cannot_say", "test.says", "test.says_a_part")]
    with executing():
        wait_for(
            lambda: Job.objects.filter(pk__in=[job.pk for job in jobs[:2]], status=JobState.COMPLETED).count() == 2,
            what="the jobs' end",
        )
        parts = JobEvent.objects.filter(job_id=jobs[2].pk, data__has_key="log")
        wait_for(parts.exists, what="a part")
    [ended] = JobEvent.objects.filter(job_id=jobs[0].pk, to_status=JobState.COMPLETED)
    facts = ended.data or {}
    assert [(level, text) for _, level, text in facts["log"]] == [("WARNING", "nul � and half a pair �")]
    assert facts["duration_ms"] >= 0
    assert not DeadLetter.objects.exists()
