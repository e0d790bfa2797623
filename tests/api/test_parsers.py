"""Bodies: the parser once by itself, and that every address which takes a body reads it with that parser."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from queueops.core.errors import QueueOpsError
from queueops.core.values.numbers import ENVELOPE_BYTES
from queueops.rest.parsers import max_job_bytes, parse_as, parse_object, parse_query_as
from tests.api.conftest import SPEC, Api
from tests.api.places import PLACES
from tests.security.world import World, everything
from tests.support.api import told
from tests.support.people import signed_in

DEEP = 5_000
# Body, code, and a part of what is said.
NO_OBJECT: list[tuple[bytes, str, str]] = [
    (b"{", "malformed_json", "line 1"),
    (b'{"kind": "http.request",}', "malformed_json", "line 1 column 25"),
    (b'{\n "kind": NaN}', "malformed_json", "line 2"),
    (b'{"amount": Infinity}', "malformed_json", "line 1"),
    (b'{"amount": -Infinity}', "malformed_json", "line 1"),
    (b'{"amount": 1e999}', "malformed_json", "too large"),
    (b'{"amount": [-1e999]}', "malformed_json", "too large"),
    (b'{"amount": %s}' % (b"9" * 400 + b".0"), "malformed_json", "too large"),
    (b"\xff", "malformed_json", ""),
    (b'{"kind": "\xff"}', "malformed_json", "unicode"),
    (b'{"kind": "a\\u0000b"}', "malformed_json", "NUL"),
    (b'{"\\u0000": 1}', "malformed_json", "NUL"),
    (b'{"kind": "\\ud800"}', "malformed_json", ""),
    (b'{"payload":' + b"[" * DEEP + b"]" * DEEP + b"}", "too_deep", "nested"),
    (b"[]", "invalid_input", "object"),
    (b"7", "invalid_input", "object"),
    (b"null", "invalid_input", "object"),
    (b'"text"', "invalid_input", "object"),
]


class Whatever(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    amount: int = 1


def refusal(read: Any, *arguments: Any) -> QueueOpsError | None:
    try:
        read(*arguments)
    except QueueOpsError as error:
        return error
    return None


def test_what_is_no_object_of_json_is_refused_with_its_cause():
    faults = {}
    for body, code, part in NO_OBJECT:
        error = refusal(parse_object, body)
        if error is None or error.code != code or part not in error.message:
            faults[body[:40]] = error
    assert faults == {}


def test_malformed_json_names_line_and_column():
    error = refusal(parse_object, b'{\n  "kind": oops\n}')
    assert error is not None
    assert (error.status, error.details) == (400, {"line": 2, "column": 11})


def test_what_is_an_object_is_read_as_it_stands():
    for body, read in (
        (b"", {}),
        (b'{"a": 1e300, "b": "\\\\u0000"}', {"a": 1e300, "b": "\\u0000"}),
        (b'{"a": "1e999", "b": 1e-999}', {"a": "1e999", "b": 0.0}),
        (b'{"a": ' + b"[" * 190 + b"]" * 190 + b"}", None),
    ):
        parsed = parse_object(body)
        assert read is None or parsed == read


def test_each_wrong_field_is_named():
    wrong: list[tuple[bytes, set[str]]] = [
        (b'{"amount": "7"}', {"amount"}),
        (b'{"amount": true}', {"amount"}),
        (b'{"amount": null}', {"amount"}),
        (b'{"amount": 1.5, "colour": 1}', {"amount", "colour"}),
    ]
    faults = {}
    for body, fields in wrong:
        error = refusal(parse_as, Whatever, body)
        if error is None or (error.code, set(error.fields)) != ("invalid_input", fields):
            faults[body] = error
    assert faults == {}
    error = refusal(parse_query_as, Whatever, {"colour": "red"})
    assert error is not None
    assert (error.code, error.status, list(error.fields)) == ("invalid_query", 400, ["colour"])


WITH_A_BODY = [place for place in PLACES if place.takes_a_body]
STREAMS = {"BatchList", "ForecastBatch"}  # may be as large as a batch; tests/api/test_encoding.py
SHARED: dict[str, tuple[bytes, str, tuple[int, str]]] = {
    "no JSON": (b"{", "application/json", (400, "malformed_json")),
    "too deep": (b"[" * DEEP + b"]" * DEEP, "application/json", (400, "too_deep")),
    "no object": (b"7", "application/json", (422, "invalid_input")),
    "a form": (b"amount=1", "application/x-www-form-urlencoded", (415, "unsupported_media_type")),
    "too large": (b" " * (max_job_bytes() + ENVELOPE_BYTES), "application/json", (413, "body_too_large")),
}


@pytest.mark.django_db
def test_every_address_that_takes_a_body_refuses_what_is_none():
    assert len(WITH_A_BODY) > 45
    world, superuser, faults = World.make(), signed_in("superuser"), {}
    before = everything()
    for name, (body, media_type, expected) in SHARED.items():
        for place in WITH_A_BODY:
            if name != "too large" or place.view.__name__ not in STREAMS:
                answer = superuser.generic(
                    place.method, place.address.path(world), body, content_type=media_type, HTTP_X_PROJECT="acme"
                )
                if told(answer)[:2] != expected:
                    faults[name, str(place)] = told(answer)
    assert faults == {}
    assert everything() == before


def test_a_field_that_an_address_does_not_know_is_refused_and_not_passed_over(api: Api):
    for path, body in (
        ("/jobs/", SPEC),
        ("/budgets/", {"name": "b", "amount": 1}),
        ("/webhooks/", {"url": "https://e.org/"}),
    ):
        assert told(api.post(path, {**body, "colour": "red"}))[::2] == (422, ["colour"])
