"""The doors refuse in the words of their provider, and store nothing."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.door.models import DoorBatch, DoorFile
from jobs.models import Batch, Job
from queueops.core.errors import error_body
from queueops.core.web.error_forms import in_form_of
from tests.api.conftest import key_for
from tests.support.cases import every_case

from .within import MESSAGES, Door, door_of, line

pytestmark = pytest.mark.django_db


@pytest.fixture
def door() -> Door:
    return door_of("acme")


@pytest.fixture(autouse=True)
def nothing_is_stored(db: None) -> Any:
    yield
    assert (Job.objects.count(), Batch.objects.count(), DoorBatch.objects.count()) == (0, 0, 0)


@every_case(
    ("path", "body", "status", "code", "param"),
    [
        ("chat/completions", '{"messages": [', 400, "malformed_json", None),
        ("chat/completions", "[]", 400, "invalid_input", None),
        ("chat/completions", {"messages": MESSAGES}, 400, "invalid_request", "model"),
        ("chat/completions", {"model": "other", "messages": MESSAGES}, 404, "model_not_found", "model"),
        ("chat/completions", {"model": "claude-1", "messages": MESSAGES}, 404, "model_not_found", "model"),
        ("chat/completions", {"model": "m-1", "messages": MESSAGES, "stream": True}, 400, "invalid_request", "stream"),
        ("chat/completions", {"model": "m-1"}, 400, "invalid_request", "messages"),
        ("chat/completions", {"model": "m-1", "messages": MESSAGES, "n": 0}, 400, "invalid_request", "n"),
        (
            "chat/completions",
            {"model": "m-1", "messages": MESSAGES, "service_tier": "flex"},
            400,
            "invalid_request",
            "service_tier",
        ),
        (
            "chat/completions",
            {"model": "m-1", "messages": MESSAGES, "background": True},
            400,
            "invalid_request",
            "background",
        ),
        ("embeddings", {"model": "m-1", "input": ""}, 400, "invalid_request", "input"),
        ("batches", {}, 400, "invalid_request", "endpoint"),
        ("batches", {"endpoint": "/v1/chat/completions"}, 400, "invalid_request", "input_file_id"),
        ("batches", {"endpoint": "/v1/audio"}, 400, "invalid_request", "endpoint"),
        ("batches", {"output_expires_after": 1}, 400, "invalid_request", "output_expires_after"),
        ("fine_tuning/jobs", {}, 404, "no_such_object", None),
        ("audio/speech", {}, 404, "no_such_object", None),
    ],
)
def test_openais_words(*, door: Door, path: str, body: Any, status: int, code: str, param: str | None):
    text = body if isinstance(body, str) else json.dumps(body)
    answer = door.send("POST", path, text)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param), error
    assert error["type"] == "invalid_request_error"
    assert f" {param}: " not in error["message"], "it is told twice"
    assert error["message"]


@every_case(
    ("name", "instead"),
    [("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID"), ("OpenAI-Beta", "betas")],
)
def test_headers_that_would_be_lost(door: Door, name: str, instead: str):
    batch = {"input_file_id": door.upload(line("a")), "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    call = {"model": "m-1", "messages": MESSAGES}
    for path, body in (
        ("chat/completions", call),
        ("responses", {"model": "m-1", "input": "Why?"}),
        ("batches", batch),
    ):
        error = door.send("POST", path, json.dumps(body), **{name: "x"}).json()["error"]
        assert (error["code"], error["param"]) == ("invalid_request", name)
        assert instead in error["message"]


@every_case(("name",), [("anthropic-workspace-id",), ("anthropic-user-profile-id",), ("anthropic-beta",)])
def test_headers_of_anthropic_that_would_be_lost(door: Door, name: str):
    params = {"model": "claude-1", "max_tokens": 5, "messages": MESSAGES}
    for path, body in (("", params), ("/batches", {"requests": [{"custom_id": "a", "params": params}]})):
        where = f"/anthropic/v1/messages{path}"
        answer = door.client.post(where, body, content_type="application/json", headers={name: "x"})
        assert answer.status_code == 400
        assert f"{name}: headers are not passed on" in answer.json()["error"]["message"]


@every_case(
    ("method", "path"),
    [
        ("GET", "openai/v1/chat/completions"),
        ("DELETE", "openai/v1/models/m-1"),
        ("POST", "openai/v1/responses/compact"),
        ("PATCH", "openai/v1/nothing"),
        ("GET", "anthropic/v1/messages"),
    ],
)
def test_what_the_provider_does_at_an_address_and_the_door_does_not_is_named(door: Door, method: str, path: str):
    answer = door.client.generic(method, f"/{path}")
    assert answer.status_code == 405
    assert f"QueueOps does not do this: {method} /{path}" in answer.json()["error"]["message"]


def test_a_word_of_streams_is_refused_as_streams_are(door: Door):
    body = {"model": "m-1", "messages": MESSAGES, "stream_options": {"include_usage": True}}
    error = door.send("POST", "chat/completions", json.dumps(body)).json()["error"]
    assert (error["param"], error["message"]) == (
        "stream_options",
        "Answers do not come in pieces here: leave stream_options out.",
    )


@every_case(
    ("given", "param"),
    [
        ({"completion_window": "24"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"completion_window": 24}, "completion_window"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {f"k{n}": "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"input_file_id": "file-" + "0" * 32}, "input_file_id"),
        ({"input_file_id": "x"}, "input_file_id"),
    ],
)
def test_a_batch_whose_options_are_not_valid(door: Door, given: dict[str, Any], param: str):
    asked = {"input_file_id": door.upload(line("a")), "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    answer = door.send("POST", "batches", json.dumps(asked | given))
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


@every_case(
    ("form", "param"),
    [
        ({"purpose": "batch"}, "file"),
        ({"purpose": "batch", "file": b""}, "file"),
        ({"purpose": "fine-tune", "file": b"{}"}, "purpose"),
        ({"file": b"{}"}, "purpose"),
        ({"purpose": "batch", "file": b"{}", "colour": "red"}, "colour"),
        ({"purpose": "batch", "file": b"{}", "expires_after[anchor]": "created_at"}, "expires_after"),
        ({"purpose": "batch", "file": b"{}", "expires_after[seconds]": "\u00b2"}, "expires_after"),
        ({"purpose": "x" * 3_000_000, "file": b"{}"}, None),
        (
            {"purpose": "batch", "file": b"{}", "expires_after[anchor]": "created_at", "expires_after[seconds]": "9"},
            "expires_after",
        ),
    ],
)
def test_a_form_that_is_not_as_wanted(door: Door, form: dict[str, Any], param: str | None):
    given = {
        name: SimpleUploadedFile("in.jsonl", value) if isinstance(value, bytes) else value
        for name, value in form.items()
    }
    answer = door.client.post("/openai/v1/files", given)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert DoorFile.objects.count() == 0


def test_a_name_of_a_file_may_be_longer_than_a_disk_takes(door: Door):
    file = SimpleUploadedFile("in." + "x" * 400, b"{}")
    told = door.client.post("/openai/v1/files", {"purpose": "batch", "file": file})
    assert told.status_code == 200
    assert DoorFile.objects.get().file_name.endswith("xxx")


def test_a_body_that_is_no_form(door: Door):
    answer = door.send("POST", "files", "{}")
    assert answer.status_code == 400
    assert "multipart/form-data" in answer.json()["error"]["message"]


@every_case(
    ("method", "path", "status", "openai", "anthropic"),
    [
        ("GET", "nothing", 404, "invalid_request_error", "not_found_error"),
        ("PUT", "models", 405, "invalid_request_error", "invalid_request_error"),
        ("GET", "models?colour=red", 400, "invalid_request_error", "invalid_request_error"),
    ],
)
def test_every_status_has_the_doors_form(
    *, door: Door, method: str, path: str, status: int, openai: str, anthropic: str
):
    answer = door.send(method, path)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, openai)
    answer = door.client.generic(method, f"/anthropic/v1/{path}")
    told = answer.json()
    assert (answer.status_code, told["type"], told["error"]["type"]) == (status, "error", anthropic)
    assert answer.headers["request-id"] == answer.headers["x-request-id"]  # Anthropic's clients read the first alone


@every_case(("status", "kind"), [(402, "billing_error"), (504, "timeout_error"), (529, "overloaded_error")])
def test_errors_of_a_provider_keep_anthropics_types(status: int, kind: str):
    told = in_form_of("/anthropic/v1/messages", status, error_body("why", "No."))
    assert (told[0], told[1]["error"]["type"]) == (status, kind)


def test_outside_of_the_versions_the_form_is_the_doors_too():
    assert Client().get("/openai/v2/models").json()["error"]["type"] == "invalid_request_error"
    assert Client().get("/anthropic/").json()["type"] == "error"


@every_case(
    ("path", "told"),
    [
        ("/openai/chat/completions", "base_url=http://testserver/openai/v1,"),
        ("/anthropic/messages", "base_url=http://testserver/anthropic,"),
        ("/anthropic/v1/v1/messages", "base_url=http://testserver/anthropic,"),
        ("/v1/chat/completions", "base_url=http://testserver/openai/v1,"),
        ("/v1/messages", "base_url=http://testserver/anthropic,"),
    ],
)
def test_a_client_whose_base_url_is_wrong_is_told_the_right_one(door: Door, path: str, told: str):
    answer = door.client.post(path, {}, content_type="application/json")
    assert answer.status_code == 404
    assert told in answer.json()["error"]["message"]


def test_a_key_that_is_good_for_nothing():
    stranger = Client(headers={"Authorization": "Bearer qo_wrong"})
    assert stranger.get("/openai/v1/models").json()["error"]["type"] == "authentication_error"
    stranger = Client(headers={"X-Api-Key": "qo_wrong"})
    assert stranger.get("/anthropic/v1/models").json()["error"]["type"] == "authentication_error"


def test_a_key_without_the_scope():
    reader = Client(headers={"Authorization": f"Bearer {key_for('acme', scopes=['read'])}"})
    answer = reader.post("/openai/v1/files", {"purpose": "batch", "file": BytesIO(b"{}")})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
