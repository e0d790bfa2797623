"""Servers that speak OpenAI's batches, and not quite as OpenAI does."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from jobs.handlers.errors import ProviderError
from jobs.models import Job, ProviderBatch
from queueops.core.outbound.client import OutboundResponse
from queueops.tenancy.models import CredentialSetting
from tests.support.batch_provider import ProviderWire, Telling
from tests.support.provider_batches import make_round

pytestmark = pytest.mark.django_db(transaction=True)

SUCCESS = {
    "response": {"status_code": 200, "body": {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}}
}
REFUSED = {"response": {"status_code": 400, "body": {"error": {"message": "not like this", "code": "no"}}}}
HUGE = {"total": 10**30, "completed": "9" * 5000}
WORDS: dict[str, dict[str, Any]] = {
    "capitals": {"status": "COMPLETED"},
    "one l": {"status": "canceled"},
    "huge counts": {"request_counts": HUGE},
    "what no row takes": {"metadata": None, "errors": {"data": [{"message": "\x00\ud800"}]}},
}


def go_on(wire: ProviderWire, rounds: int) -> ProviderBatch:
    for _ in range(rounds):
        ProviderBatch.objects.filter(closed_at=None).update(look_at=timezone.now())
        make_round(wire)
    wire.close()
    return ProviderBatch.objects.earliest("created_at")


@pytest.mark.parametrize("told", WORDS.values(), ids=WORDS)
def test_a_batch_is_read_whatever_words_and_counts_it_has(lane, told):
    lane.credential()
    lane.submit(1)
    batch = go_on(ProviderWire(Telling(output=[(0, SUCCESS)], told=told)), 3)
    assert (batch.succeeded, batch.closed_at is not None) == (1, True)


def test_a_state_that_nobody_knows_is_shown_and_waited_for(lane):
    lane.credential()
    lane.submit(1)
    provider = Telling(output=[(0, SUCCESS)], told={"status": "\x00waiting" * 20})
    batch = go_on(ProviderWire(provider), 2)
    assert (batch.state, batch.faults, batch.provider_state[1:8]) == ("open", 0, "waiting")


def test_a_failed_batch_that_says_of_each_line_why_is_read(lane):
    lane.credential()
    lane.submit(1)
    told = {"status": "failed", "request_counts": {"total": 1, "failed": 1}}
    batch = go_on(ProviderWire(Telling(errors=[(0, REFUSED)], told=told)), 3)
    assert (batch.state, batch.failed) == ("failed", 1)
    assert list(Job.objects.values_list("status", "last_error_code")) == [("failed", "no")]


class Refusing(ProviderWire):
    """Answers some calls with an error, or with an object that a test sets."""

    def __init__(self, provider: Telling, *, on: str, times: int, answer: ProviderError | bytes) -> None:
        super().__init__(provider)
        self.on, self.times, self.answer, self.uploads = on, times, answer, 0

    async def send(self, method: str, url: str, **given: Any) -> OutboundResponse:
        path = url.partition("/v1/")[2].partition("?")[0]
        self.uploads += (method, path) == ("POST", "files")
        if f"{method} {path}" in self.on and self.times:
            self.times -= 1
            if isinstance(self.answer, ProviderError):
                raise self.answer
            response: OutboundResponse = await super().send(method, url, **given)
            return OutboundResponse(200, response.headers, self.answer, is_truncated=False, charset=None)
        result: OutboundResponse = await super().send(method, url, **given)
        return result


def refusal(status: int, message: str = "no") -> ProviderError:
    return ProviderError(status, message, code=f"http_{status}", outcome="answered")


GONE = [refusal(404), refusal(400, "Input file file-1 not found"), refusal(400, "the file is not ready yet")]


@pytest.mark.parametrize("error", GONE, ids=str)
@pytest.mark.parametrize(("times", "uploads"), [(2, 1), (4, 2)])
def test_a_file_that_is_not_there_yet_is_asked_for_again_and_one_that_is_gone_is_uploaded_again(
    lane, error, times, uploads
):
    lane.credential()
    lane.submit(1)
    wire = Refusing(Telling(output=[(0, SUCCESS)]), on="POST batches", times=times, answer=error)
    batch = go_on(wire, times + 3)
    assert (batch.state, batch.succeeded, batch.creations, wire.uploads) == ("completed", 1, 1, uploads)


def test_a_file_that_is_never_there_sends_its_jobs_live(lane):
    lane.credential()
    lane.submit(1)
    batch = go_on(Refusing(Telling(), on="POST batches", times=99, answer=refusal(404)), 8)
    assert (batch.state, batch.handed_back, batch.unanswered) == ("failed", 1, 0)
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists()
    assert not CredentialSetting.objects.exists()


def test_a_server_with_files_and_without_batches_is_known_by_its_list(lane):
    lane.credential()
    lane.submit(1)
    batch = go_on(Refusing(Telling(), on="POST batches GET batches", times=2, answer=refusal(404)), 1)
    assert (batch.state, batch.handed_back) == ("failed", 1)
    assert CredentialSetting.objects.get().takes == CredentialSetting.Takes.NO_BATCHES


def test_an_answer_that_names_no_batch_is_none_and_its_batch_is_looked_for(lane):
    lane.credential()
    lane.submit(1)
    wire = Refusing(Telling(output=[(0, SUCCESS)]), on="POST batches", times=1, answer=b'{"job": {"id": "b"}}')
    make_round(wire)
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.provider_id, batch.creations) == ("creating", "", 1)
    assert "names no batch" in batch.error
    lane.calls, idle = wire, lane.calls
    assert lane.tend_until_closed().succeeded == 1
    assert len(wire.provider.batches) == 1
    idle.close()


class Replacing(ProviderWire):
    """Shows other results than the provider's, so many times."""

    def __init__(self, provider: Telling, page: bytes, *, times: int) -> None:
        super().__init__(provider)
        self.page, self.times = page, times

    async def send(self, method: str, url: str, *, on_line: Any = None, **given: Any) -> OutboundResponse:
        response: OutboundResponse = await super().send(method, url, **given)
        is_replaced, self.times = bool(on_line and self.times), self.times - bool(on_line and self.times)
        for line in (self.page if is_replaced else response.body).splitlines() if on_line else ():
            on_line(line)
        return response


def test_a_page_in_the_place_of_the_results_ends_no_batch(lane):
    lane.credential()
    lane.submit(1)
    page = b"<html>\n<p>Please log in\n</html>\n"
    batch = go_on(Replacing(Telling(output=[(0, SUCCESS)]), page, times=2), 5)
    assert (batch.state, batch.succeeded, batch.unanswered, batch.malformed_lines) == ("completed", 1, 0, 0)


def test_a_broken_letter_costs_no_answer_and_line_ends_and_marks_of_other_systems_none(lane):
    lane.credential()
    lane.submit(2)
    provider = Telling(output=[(0, SUCCESS), (1, SUCCESS)])
    wire = ProviderWire(provider)
    go_on(wire, 1)
    [name] = [name for name in provider.files if name.startswith("output-")]
    first, second = provider.files[name].splitlines()
    provider.files[name] = b"\xef\xbb\xbf" + first.replace(b'"x"', b'"x\xff"') + b"\r\n" + second + b"\r\n"
    batch = go_on(ProviderWire(provider), 3)
    assert (batch.state, batch.succeeded, batch.malformed_lines) == ("completed", 2, 0)
    assert sorted(Job.objects.values_list("result__text", flat=True)) == ["x", "x\ufffd"]


@pytest.mark.parametrize(("lacks", "there"), [("output", "failed"), ("error", "completed")])
def test_a_file_of_results_that_is_not_there_does_not_hide_the_other(lane, lacks, there):
    lane.credential()
    lane.submit(2)
    provider = Telling(output=[(0, SUCCESS)], errors=[(1, REFUSED)])
    go_on(ProviderWire(provider), 1)
    [name] = [name for name in provider.files if name.startswith(f"{lacks}-")]
    file = provider.files.pop(name)
    batch = go_on(ProviderWire(provider), 1)
    assert (batch.state, sorted(Job.objects.values_list("status", flat=True))) == ("collecting", [there, "in_progress"])
    provider.files[name] = file
    batch = go_on(ProviderWire(provider), 1)
    assert (batch.succeeded, batch.failed, batch.unanswered) == (1, 1, 0)


def test_an_upload_that_names_no_file_makes_no_batch(lane):
    lane.credential()
    lane.submit(1)
    batch = go_on(Refusing(Telling(output=[(0, SUCCESS)]), on="POST files", times=1, answer=b"{}"), 4)
    assert (batch.state, batch.succeeded, batch.uploads) == ("completed", 1, 2)
