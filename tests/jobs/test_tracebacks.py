"""The traceback of a handler's bug: kept with its attempt, bounded and masked, and shown to those who mend it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from dashboards.live.subjects import LiveSubject, open_job
from dashboards.live.viewer import Viewer, viewer_of_key, viewer_of_session
from jobs.classify import failure_of, fingerprint
from jobs.executor.loop import HandlerLoop
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.explain.event_log import Cursor
from jobs.services.finish.outcomes import Failed
from jobs.states import JobState
from jobs.tracebacks import MAX_LINE, MAX_TRACEBACK, traceback_of
from queueops.core.sql import run_sql
from queueops.site import roles
from queueops.tenancy.models import ProducerKey, Project, Scope
from queueops.tenancy.secrets.credentials import OpenCredential
from tests.factories import make_job
from tests.support.executing import Driven, Number, claimed, executing
from tests.support.issuers import make_issuer, shared_token
from tests.support.people import signed_in
from tests.support.processes import wait_for

SECRET = "sk-live-51H8canary"
HOSTILE = "<script>alert(1)</script>"
USER = UUID("018f6a52-0000-7000-8000-000000000001")
TIME_LIMIT = timedelta(seconds=0.1)


def look_up_rate(currency: str) -> None:
    private_note = "local variables stay out"
    raise LookupError(f"{HOSTILE}: no rate of {currency}, asked with token={SECRET}", len(private_note))


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind="test.bug", service="test", payload=Number)
    async def bug(job: RunningJob[Number]) -> Done:
        look_up_rate("XAU")
        return Done()

    @handler(kind="test.bug_in_a_thread", service="test", payload=Number, idempotent=True)
    def bug_in_a_thread(job: RunningJob[Number]) -> Done:
        look_up_rate("XAG")
        return Done()

    @handler(kind="test.leaks", service="test", payload=Number)
    async def leaks(job: RunningJob[Number]) -> Done:
        assert job.credential is not None
        raise ValueError(f"cannot sign with {job.credential.secret['key']!r}")

    @handler(kind="test.refused", service="test", payload=Number)
    async def refused(job: RunningJob[Number]) -> Done:
        try:
            look_up_rate("EUR")
        except LookupError as error:
            raise ProviderError(404, "no such rate", code="no_rate", outcome="answered") from error
        return Done()

    @handler(kind="test.slow", service="test", payload=Number, timeout=TIME_LIMIT)
    async def slow(job: RunningJob[Number]) -> Done:
        await asyncio.Event().wait()
        return Done()

    @handler(kind="test.gives_up", service="test", payload=Number)
    async def gives_up(job: RunningJob[Number]) -> Done:
        raise asyncio.CancelledError


@pytest.fixture
def driven(handlers: None) -> Iterator[Driven]:
    loop = HandlerLoop(slots=2, wake=lambda: None)
    loop.start()
    yield Driven(loop)
    loop.stop()


def throw(error: Exception) -> None:
    raise error


def raised(error: Exception) -> Exception:
    try:
        throw(error)
    except Exception as caught:  # noqa: BLE001 - as the loop catches
        return caught
    raise AssertionError


@pytest.mark.parametrize("kind", ["test.bug", "test.bug_in_a_thread"])
def test_it_leads_from_the_handler_to_the_line_that_raised(driven: Driven, kind: str):
    [failed] = driven.run(claimed(kind))
    assert isinstance(failed, Failed)
    lines = failed.failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith('  File "tests/jobs/test_tracebacks.py", line ')
    assert lines[1].endswith(f"in {kind.removeprefix('test.')}")
    assert any(line.endswith("in look_up_rate") for line in lines)
    assert lines[-1].startswith("LookupError: ")
    assert "local variables" not in "\n".join(lines[:-1]).replace('private_note = "local variables stay out"', "")
    assert SECRET not in failed.failure.traceback


def test_a_credentials_secret_is_masked_in_it_whatever_its_name(driven: Driven):
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----"
    opened = OpenCredential(name="own", service="test", secret={"key": key})
    driven.loop.carry_out([claimed("test.leaks")._replace(credential="own")], {"own": opened})

    def has_ended() -> bool:
        driven.collect()
        return bool(driven.outcomes)

    wait_for(has_ended, what="the job's end")
    [failed] = driven.outcomes
    assert isinstance(failed, Failed)
    assert "cannot sign with" in failed.failure.traceback
    assert "MIIEvQ" not in failed.failure.traceback


@pytest.mark.parametrize("kind", ["test.refused", "test.slow", "test.gives_up", "test.unheard_of"])
def test_what_a_provider_answered_and_what_took_too_long_has_none(driven: Driven, kind: str):
    [failed] = driven.run(claimed(kind))
    assert isinstance(failed, Failed)
    assert failed.failure.traceback == ""


def dig(depth: int) -> None:
    if depth == 0:
        raise RuntimeError("at the bottom")
    bury(depth)


def bury(depth: int) -> None:
    dig(depth - 1)


def test_the_innermost_frames_of_a_deep_one_are_kept():
    with pytest.raises(RuntimeError) as caught:
        dig(300)
    text = traceback_of(caught.value)
    assert len(text) <= MAX_TRACEBACK
    assert text.endswith("RuntimeError: at the bottom\n")
    assert text.count("in dig") > 10


def test_a_long_message_leaves_room_for_the_frames():
    text = traceback_of(raised(ValueError("x" * 1_000_000 + "\n" + "y\n" * 100_000)))
    assert "in throw" in text
    assert len(text) <= MAX_TRACEBACK
    assert max(len(line) for line in text.splitlines()) <= MAX_LINE + 1


def test_many_causes_are_cut_at_the_oldest():
    error: Exception = ValueError("the first")
    for number in range(200):
        following = KeyError(number)
        following.__cause__ = raised(error)
        error = following
    text = traceback_of(raised(error))
    assert text.startswith("[cut]\n")
    assert len(text) <= MAX_TRACEBACK
    assert text.endswith("KeyError: 199\n")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_cannot_be_told_of_still_has_its_frames():
    assert "in throw" in traceback_of(raised(Unspeakable()))


def test_it_can_be_stored_whatever_the_message_holds():
    text = traceback_of(raised(ValueError("nul \0 and half a pair \ud800")))
    assert "\0" not in text
    text.encode()


def test_the_cause_of_failures_does_not_depend_on_it():
    one, other = failure_of(raised(ValueError("no"))), failure_of(ValueError("no"))
    assert one.traceback != other.traceback
    assert fingerprint("k", one) == fingerprint("k", other)


# Kept with the attempt, and shown.


@pytest.fixture
def letter(handlers: None, transactional_db: None) -> DeadLetter:
    """Of a job that a real executor carried out and whose handler has a bug."""
    job = make_job(kind="test.bug", payload="{}", user_id=USER)
    with executing():
        wait_for(lambda: Job.objects.get(pk=job.pk).status == JobState.FAILED, what="the job's end")
    return DeadLetter.objects.get(job_id=job.pk)


def key() -> str:
    return ProducerKey.issue(Project.objects.get(pk="acme"), name="own", scopes=list(Scope.values))[1]


def reading(client: Client, letter: DeadLetter) -> dict[str, str]:
    job = f"/api/v1/jobs/{letter.job_id}/"
    addresses = (job, f"{job}events/", "/api/v1/events/", "/api/v1/dead-letters/", f"/api/v1/dead-letters/{letter.pk}/")
    return {address: client.get(address).content.decode() for address in addresses}


def seen_over_sockets(viewer: Viewer | None, letter: DeadLetter) -> str:
    assert viewer is not None
    subject: LiveSubject = open_job(viewer, letter.job_id)
    events = subject.missed(0) or []
    assert any("handler_error" in (event.data or "") for event in events)
    return f"{subject.read(Cursor(0, ''))} {[event.body for event in events]}"


def test_it_is_kept_with_the_attempt_and_shown_to_those_who_may_see_the_job(letter: DeadLetter):
    [attempt] = letter.attempts
    assert "in look_up_rate" in attempt["traceback"]
    assert JobEvent.objects.filter(to_status=JobState.FAILED, data__traceback=attempt["traceback"]).exists()
    assert SECRET not in json.dumps(attempt["traceback"])

    for role in [*roles.ROLES, "superuser"]:
        person = signed_in(role)
        for page in (f"jobs/job/{letter.job_id}", f"jobs/deadletter/{letter.pk}"):
            text = person.get(f"/admin/{page}/change/").content.decode()
            assert text.count("<summary>traceback</summary>") == 1
            assert text.count("in look_up_rate") == 1
            assert HOSTILE not in text
            assert SECRET not in text
        groups = person.get(reverse("admin:jobs_deadletter_groups")).content.decode()
        assert f"/admin/jobs/deadletter/{letter.pk}/change/#attempts" in groups
        assert "with traceback" in groups
        api = Client(headers={"X-Project": "acme"})
        api.cookies = person.cookies
        shown = {address for address, text in reading(api, letter).items() if "in look_up_rate" in text}
        assert len(shown) == 4  # all but the job's own address, which has its last event alone
        assert "in look_up_rate" not in seen_over_sockets(viewer_of_session(person.session), letter)


def test_it_is_not_shown_to_others(letter: DeadLetter):
    nobody = signed_in(None)
    for page in (f"jobs/job/{letter.job_id}", f"jobs/deadletter/{letter.pk}"):
        assert "in look_up_rate" not in nobody.get(f"/admin/{page}/change/", follow=True).content.decode()
    make_issuer(issuer="https://shared.example.org", scopes=["read"])
    Project.objects.update(anonymous_read=True)
    token = shared_token(USER, iss="https://shared.example.org")
    own_key = key()
    callers = {"key": f"Bearer {own_key}", "token": f"Bearer {token}", "anybody": ""}
    for name, authorization in callers.items():
        headers = {"Authorization": authorization} if authorization else {"X-Project": "acme"}
        texts = reading(Client(headers=headers), letter)
        assert "handler_error" in texts[f"/api/v1/jobs/{letter.job_id}/events/"], name
        assert not [address for address, text in texts.items() if "look_up_rate" in text], name
    assert "look_up_rate" not in seen_over_sockets(viewer_of_key(own_key), letter)
    pushed = str(list(run_sql("jobs", "read_events", {"after": 0, "seen": None, "until": None, "most": 100})))
    assert "handler_error" in pushed
    assert "look_up_rate" not in pushed


def test_an_attempt_that_is_repeated_keeps_its_own(handlers: None, transactional_db: None):
    make_job(kind="test.bug_in_a_thread", payload="{}")
    with executing():
        wait_for(JobEvent.objects.filter(to_status=JobState.RETRIED).exists, what="the failed attempt")
    assert JobEvent.objects.filter(to_status=JobState.RETRIED, data__traceback__icontains="in look_up_rate").exists()
