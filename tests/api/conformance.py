"""Requests made from the OpenAPI document, and what an answer to one may be."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, connection
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as effort
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from queueops.tenancy.models import ProducerKey, Scope
from tests.factories import make_project
from tests.security.addresses import row_of
from tests.security.world import PROJECT, World
from tests.support.people import session_of

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# What the document cannot say of a body that it describes has codes of its own; these say that the shape is wrong.
OF_THE_SHAPE = frozenset({"invalid_input", "invalid_query", "malformed_json", "bad_request", "unsupported_media_type"})
CHECKED_PLACES = (ParameterLocation.QUERY, ParameterLocation.BODY)  # paths and headers hold what this module puts there
# What only the server, or only who calls, can know: no document could say which values are taken. Nor does a pattern
# say which characters can be printed, as those of tags, or how the fields of a job or the days of a report go together.
UNSAYABLE = frozenset({"cursor", "user_id", "key", "project", "tags", "any_tag", "on_finish", "to"})
ONE_BY_ONE = frozenset({"/api/v1/usage/ingest/"})  # answers 200 with what is wrong with each
PLENTY = 1_000_000  # requests a minute


def callers() -> list[dict[str, str]]:
    """The headers of whoever may call: a key of each scope, of all, of another project, an operator, nobody."""
    project, other = make_project(PROJECT), make_project("globex")

    def key(of: Any, scopes: list[str]) -> dict[str, str]:
        secret = ProducerKey.issue(of, name="c", scopes=scopes, requests_per_minute=PLENTY)[1]
        return {"Authorization": f"Bearer {secret}"}

    token = secrets.token_hex(16)
    cookies = f"{settings.SESSION_COOKIE_NAME}={session_of('superuser')}; {settings.CSRF_COOKIE_NAME}={token}"
    operator = {"Cookie": cookies, "X-CSRFToken": token, "X-Project": PROJECT}
    every = key(project, list(Scope.values))
    return [every, every, every, operator, key(other, list(Scope.values)), {}] + [
        key(project, [scope]) for scope in Scope.values
    ]


@dataclass
class Findings:
    """
    Attributes:
        cases: Requests that were sent.
        faults: What was wrong, by operation and answer, with the first request that showed it.
    """

    cases: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)


@contextmanager
def _connection_kept() -> Iterator[None]:
    """As Django's own test client does: the connection is the test's, and its transaction with it."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    with connection.cursor() as cursor:  # a request takes as long to think up as the machine is busy
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    try:
        yield
    finally:
        for signal in signals:
            signal.connect(close_old_connections)


@_connection_kept()
def try_everything(*, examples: int, start: int) -> Findings:
    """
    Send requests to every operation, such as the document allows and such as it does not.

    Args:
        examples: Of each of the two kinds, of each operation.
        start: The seed.
    """
    world = World.make()
    who = callers()
    schema = schemathesis.openapi.from_wsgi("/api/v1/schema/?format=json", get_wsgi_application())
    schema.config.generation.update(
        with_security_parameters=False,  # the headers of `who` are sent
        allow_x00=False,  # no column holds it: 400 in whatever text, which the document says of none
        allow_extra_parameters=False,  # lists alone refuse them
    )
    found = Findings()
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # the document is read whole, or this fails
        if operation.path.endswith("/schema/"):
            continue
        for mode in GenerationMode:
            _try(operation, mode, world=world, who=who, found=found, examples=examples, start=start)
    return found


def _try(operation: Any, mode: GenerationMode, *, world: World, who: list[Any], found: Findings, **of: int) -> None:
    rows = list(_rows(operation.path, world))

    @seed(of["start"])
    @effort(
        max_examples=of["examples"],
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def send(data: Any) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        headers = data.draw(st.sampled_from(who))
        if rows and data.draw(st.integers(0, 3)):
            case.path_parameters = {**case.path_parameters, "id": rows[0]}
        if mode == GenerationMode.POSITIVE:
            case.body = _as_written(case.body)
        found.cases += 1
        response = case.call(headers={**headers, "Accept-Encoding": "identity"})
        found.statuses[response.status_code] += 1
        for fault in _faults(case, response, mode):
            found.faults.setdefault(f"{operation.label} {response.status_code} {fault}"[:300], _told(case, response))

    try:
        send()
    except Unsatisfiable:
        pass  # it takes nothing that could be wrong
    except Exception as error:  # noqa: BLE001 - of the generator: a document that it cannot read
        found.faults[f"{operation.label} {mode.value}: {type(error).__name__}"] = str(error)[:2000]


def _as_written(body: Any) -> Any:
    """To JSON Schema 60.0 is a whole number; some figures must be written as one."""
    if isinstance(body, dict):
        return {name: _as_written(value) for name, value in body.items()}
    if isinstance(body, list):
        return [_as_written(value) for value in body]
    return int(body) if isinstance(body, float) and body.is_integer() else body


def _rows(path: str, world: World) -> Iterator[str]:
    if "{id}" in path:
        yield world.ids[row_of(path.removeprefix("/"))]


def _faults(case: Any, response: Any, mode: GenerationMode) -> Iterator[str]:
    if response.status_code >= 500:
        yield "is an error of ours"
    try:
        case.validate_response(response, checks=CHECKS)
    except FailureGroup as group:
        yield from (f"{failure.title}: {failure.message.splitlines()[0]}" for failure in group.exceptions)
    error = _error(response)
    if mode == GenerationMode.POSITIVE:
        if error.get("code") in OF_THE_SHAPE and not all(
            UNSAYABLE.intersection(name.split(".")) for name in error.get("fields", [""])
        ):
            yield f"refused what the document allows: {error['code']}"
    elif (
        response.status_code < 300
        and case.operation.path not in ONE_BY_ONE
        and case.meta.phase.data.parameter_location in CHECKED_PLACES
    ):
        yield "took what the document forbids"


def _error(response: Any) -> dict[str, Any]:
    try:
        error = json.loads(response.content)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}  # an operation's own field is a text


def _told(case: Any, response: Any) -> str:
    sent = f"{case.method} {case.formatted_path} {case.query} {str(case.body)[:500]!r}"
    return f"{sent}\n  {response.content[:400]!r} {case.meta and case.meta.phase.data.description}"
