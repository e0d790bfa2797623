"""What a server takes is learned from a refusal that names a field, kept for its credential, address and model."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web
from django.urls import reverse

from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Continue
from jobs.models import Job
from jobs.services.submit.choose_delivery import NoBatchForm
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.testing import drain
from queueops.audit.models import AuditEntry
from queueops.tenancy.credential_pools import server_settings
from queueops.tenancy.credential_pools.server_settings import SettingPlace, noted_here, write_noted
from queueops.tenancy.models import Credential, CredentialSetting
from queueops.tenancy.secrets.credentials import open_for, open_named, seal
from tests.factories import make_project
from tests.support.http_server import serving
from tests.support.llm import API_KEY, ask, payload_of
from tests.support.people import signed_in

FORMS = {
    form["name"]: form
    for form in map(json.loads, (Path(__file__).parent / "wire/refusals.ndjson").read_text().splitlines())
}
ANSWER = {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}
Takes = CredentialSetting.Takes


@pytest.fixture(autouse=True)
def nothing_learned():
    server_settings.forget()
    yield
    server_settings.forget()


def asked(refusals: list[dict[str, Any]], *, times: int, **fields: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """What a job came to each time, of a server that refuses first so, then so, and what it was sent."""
    bodies: list[dict[str, Any]] = []
    waiting = list(refusals)

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        form = waiting.pop(0) if waiting else None
        return web.json_response(form["body"], status=form["status"]) if form else web.json_response(ANSWER)

    async def once(url: str) -> Any:
        try:
            return await ask(url, provider="openai", **fields)
        except ProviderError as error:
            return error

    async def scenario() -> list[Any]:
        async with serving(answer) as url:
            return [await once(url) for _ in range(times)]

    return asyncio.run(scenario()), bodies


def test_a_job_whose_server_names_a_field_is_asked_again_without_it_and_so_are_those_that_follow():
    told, bodies = asked([FORMS["stream_options_422"]], times=3, stream=True)
    assert isinstance(told[0], Continue)
    assert (told[0].cost, told[0].partial) == (0, {"parts": []})
    assert [one.result["text"] for one in told[1:]] == ["fine", "fine"]
    assert ["stream_options" in body for body in bodies] == [True, False, False]


def test_the_other_name_for_the_most_output_is_learned_and_two_lessons_take_two_refusals():
    told, bodies = asked(
        [FORMS["max_tokens_400"], FORMS["stream_options_422"]], times=3, stream=True, max_output_tokens=9
    )
    assert [type(one).__name__ for one in told] == ["Continue", "Continue", "Done"]
    last = bodies[-1]
    assert (last.get("max_tokens"), last.get("max_completion_tokens"), "stream_options" in last) == (None, 9, False)


def refused(message: Any, status: int = 400, **error: Any) -> dict[str, Any]:
    return {"status": status, "body": {"error": {"message": message, **error}}}


@pytest.mark.parametrize(
    "form",
    [
        refused("max_tokens is too large: 999999. This model supports at most 4096.", param="max_tokens"),
        refused("Unsupported parameter: 'temperature'", code="unsupported_parameter"),
        refused("Unsupported parameter: 'max_tokens'", status=403),
        refused("Extra inputs are not permitted: max_completion_tokens"),  # it was not sent
    ],
)
def test_nothing_is_learned_from_other_refusals(form: dict[str, Any]):
    [told], bodies = asked([form], times=1, max_output_tokens=9)
    assert isinstance(told, ProviderError)
    assert len(bodies) == 1


def test_a_server_that_takes_neither_name_is_refused_for_good_and_not_asked_for_ever():
    other = refused("Unsupported parameter: 'max_completion_tokens'")
    told, _ = asked([FORMS["max_tokens_400"], other, FORMS["max_tokens_400"]], times=3, max_output_tokens=9)
    assert [type(one).__name__ for one in told] == ["Continue", "Continue", "ProviderError"]


def test_a_line_of_a_batch_that_is_refused_so_goes_live():
    form = batch_form(DIALECTS)
    payload = LlmGenerate.model_validate(payload_of(provider="openai", max_output_tokens=9))
    for name, again in (("max_tokens_400", True), ("anthropic_no_credit", False)):
        failure = form.refuse(payload, FORMS[name]["status"], FORMS[name]["body"], ())
        assert isinstance(failure, ProviderError)
        assert failure.details.get("should_retry", False) is again, name


@pytest.fixture
def key(db: None) -> Credential:
    made = Credential.objects.create(
        name="key", service="openai", secret=seal({"api_key": API_KEY}), base_url="https://llm.example.org/v1"
    )
    made.projects.add(make_project("acme"))
    return made


PLACE = SettingPlace("key", "https://llm.example.org/v1", "small-1")


def test_what_is_learned_is_a_row_of_its_credential_address_and_model_alone(key: Credential):
    server_settings.note(PLACE, Takes.NO_STREAM_OPTIONS, "no stream_options here")
    server_settings.note(PLACE._replace(base_url="https://other.example.org"), Takes.MAX_TOKENS, "of another address")
    server_settings.note(PLACE, Takes.NO_STREAM_OPTIONS, "said again")
    assert noted_here(PLACE) == {"no_stream_options"}
    assert (write_noted(), write_noted()) == (1, 0)
    row = CredentialSetting.objects.get()
    assert (row.model, row.takes, row.is_learned, row.reason) == (
        "small-1",
        "no_stream_options",
        True,
        "no stream_options here",
    )
    entry = AuditEntry.objects.get(action="learn_credential_setting")
    assert (entry.target, (entry.after or {})["takes"]) == ("credential key", "no_stream_options")
    server_settings.forget()
    for opened in (open_named("key"), open_for(["key"])["key"]):
        assert (opened.takes("small-1"), opened.takes("other")) == (frozenset({"no_stream_options"}), frozenset())
    Credential.objects.update(base_url="https://new.example.org")
    assert open_named("key").takes("small-1") == frozenset()
    row.base_url, row.model = "", ""
    row.save()  # by hand: of every address and model
    assert open_named("key").takes("any") == {"no_stream_options"}


class StrictServer(BaseHTTPRequestHandler):
    """Takes no max_tokens and says so; notes what it was sent."""

    bodies: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        form: dict[str, Any] = FORMS["max_tokens_400"] if "max_tokens" in body else {"status": 200, "body": ANSWER}
        told = json.dumps(form["body"]).encode()
        self.send_response(form["status"])
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: Any) -> None: ...


def test_an_executor_asks_again_at_once_spends_no_attempt_and_writes_down_what_it_learned(key: Credential):
    server = ThreadingHTTPServer(("127.0.0.1", 0), StrictServer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        Credential.objects.update(base_url=f"http://127.0.0.1:{server.server_port}/v1")
        payload = payload_of(provider="openai", credential="key", max_output_tokens=9)
        for _ in range(2):
            spec = JobSpec.model_validate({"kind": "llm.generate", "payload": payload})
            submit_job(spec, project_id="acme", actor="key:test")
            drain()
    finally:
        server.shutdown()
        server.server_close()
    assert set(Job.objects.values_list("status", "retry_count")) == {("completed", 0)}
    assert ["max_tokens" in body for body in StrictServer.bodies] == [True, False, False]
    row = CredentialSetting.objects.get()
    assert (row.model, row.takes, row.is_learned) == ("small-1", "max_completion_tokens", True)
    assert "Unsupported parameter" in row.reason


def test_a_server_that_takes_no_batches_gets_its_jobs_live(key: Credential):
    payload = payload_of(provider="openai", credential="key")

    def submit(**fields: Any) -> Job:
        spec = JobSpec.model_validate({"kind": "llm.generate", "payload": payload, **fields})
        return Job.objects.get(pk=submit_job(spec, project_id="acme", actor="key:test").id)

    assert submit(via="batch").via == "batch"
    CredentialSetting.objects.create(credential=key, model="small-1", takes=Takes.NO_BATCHES)
    with pytest.raises(NoBatchForm, match="takes no batches"):
        submit(via="batch")
    payload["model"] = "other"
    assert submit(via="batch").via == "batch"


def test_operators_see_what_was_learned_and_undo_it(key: Credential):
    server_settings.note(PLACE, Takes.MAX_COMPLETION_TOKENS, "Unsupported parameter: 'max_tokens'")
    write_noted()
    page = reverse("admin:tenancy_credential_change", args=[key.pk])
    client = signed_in("administrator")
    shown = client.get(page).content.decode()
    assert "What its server takes" in shown
    assert "Unsupported parameter: &#x27;max_tokens&#x27;" in shown
    row = CredentialSetting.objects.get()
    form = {
        "service": "openai",
        "projects": ["acme"],
        "base_url": key.base_url,
        "placement": key.placement,
        **{f"settings-{name}_FORMS": count for name, count in (("TOTAL", 2), ("INITIAL", 1), ("MIN_NUM", 0))},
        "settings-0-id": row.pk,
        "settings-0-credential": key.pk,
        "settings-0-takes": row.takes,
        "settings-0-DELETE": "on",
        "settings-1-credential": key.pk,
        "settings-1-takes": "no_batches",
    }
    answer = client.post(page, form)
    assert answer.status_code == 302, answer.content.decode()
    assert list(CredentialSetting.objects.values_list("model", "takes", "is_learned")) == [("", "no_batches", False)]
    entry = AuditEntry.objects.filter(action="change_credential").latest("id")
    assert ((entry.before or {})["settings"], (entry.after or {})["settings"]) == (
        [["small-1", "max_completion_tokens"]],
        [["", "no_batches"]],
    )
