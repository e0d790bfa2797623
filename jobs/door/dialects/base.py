"""The base of the doors' views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import inputs
from jobs.api.views.base import READ, SUBMIT, ApiView
from jobs.door import calls
from jobs.door.errors import BadDoorRequest, KeysOnly
from jobs.door.files import id_in
from jobs.door.models import Protocol
from jobs.door.outcomes import DoorOutcome, outcome_of
from jobs.door.repeats import CALL
from jobs.handlers.fallback import CONTEXT_TOO_LONG
from jobs.services.explain.snapshots import MAX_WAIT_SECONDS
from jobs.states import UNFINISHED, JobState
from queueops.core.errors import error_body
from queueops.core.web.error_forms import in_form_of
from queueops.rest.parsers import parse_object, without_mark
from queueops.tenancy.callers.permissions import ensure, sees_secrets

DEFAULT_LIMIT = 20
ASK_AGAIN_SECONDS = 2
CONFLICT = 409
NO_SECOND_TRY = {"x-should-retry": "false"}  # official clients obey this header; the queue has already retried for them
# Python's client sends the first, Node's the second; docs/reference/wire-facts.md.
CLIENTS_TIMEOUTS = ("x-stainless-read-timeout", "x-stainless-timeout")
CLIENTS_TRIES = "x-stainless-retry-count"
# OpenAI's own word, which programs look for; Anthropic has no codes.
PROVIDERS_CODES = {CONTEXT_TOO_LONG: "context_length_exceeded"}
_PLAIN_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


@extend_schema(exclude=True)  # the provider documents this API
class DoorView(ApiView):
    """Answers in the form of a provider's API. Files and answers are not masked, so only keys may use it."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if not sees_secrets(self.caller.actor):
            raise KeysOnly

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        """
        Raises:
            MethodNotAllowed: The provider may well do it.
        """
        raise MethodNotAllowed(str(request.method), f"QueueOps does not do this: {request.method} {request.path}.")

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answered = super().finalize_response(request, response, *args, **kwargs)
        if answered.status_code == CONFLICT:  # official clients would repeat the request twice, for the same answer
            answered["x-should-retry"] = NO_SECOND_TRY["x-should-retry"]
        return answered

    def document(self, raw: bytes | None = None) -> tuple[dict[str, Any], str]:
        """
        The body as an object, and as it was written.

        Raises:
            MalformedJSON, TooDeep, InvalidInput, BodyTooLarge, UnsupportedMediaType
        """
        given = self.raw if raw is None else raw
        return parse_object(given), without_mark(given).decode(errors="replace")

    def limit(self, *, most: int, default: int = DEFAULT_LIMIT) -> int:
        """
        How many rows a page has.

        Raises:
            BadDoorRequest
        """
        text = self.request.query_params.get("limit")
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= most):  # noqa: PLR2004
            raise BadDoorRequest(f"limit is a whole number from 1 to {most:,}.", fields={"limit": ["a whole number"]})
        return int(text)

    def id_of(self, name: str, prefix: str) -> UUID | None:
        """
        The id that a query parameter gives; None: it is left out.

        Raises:
            NoSuchObject
        """
        text = self.request.query_params.get(name)
        return None if text is None else id_in(text, prefix, field=name)


class SingleCall(DoorView):
    """
    A call whose caller waits: dashboards/live/long_polls.py holds the response back until the call ends or times out.

    Attributes:
        root: The beginning of the door's addresses.
        refused_headers: As `refuse_headers` takes them.
    """

    needs: ClassVar = {"POST": SUBMIT}
    endpoint: str = ""
    provider: ClassVar[Protocol]
    root: ClassVar[str]
    refused_headers: ClassVar[Mapping[str, str]]

    def post(self, request: Request) -> Response:
        refuse_headers(request, self.refused_headers)
        ensure(self.caller, READ)  # otherwise the call would be paid for, and the caller could not read the answer
        body, text = self.document()
        wait = wanted_seconds(request)
        job = calls.submit_call(
            body,
            text,
            endpoint=self.endpoint,
            provider=self.provider,
            project_id=self.caller.project_id,
            actor=self.caller.actor,
            key=self.idempotency_key(),
            is_repeated=is_repeated(request),
            refused=_digest_of_refusal(request),
        )
        return self.answered_now(body, job) or waiting_answer(job, self.root, wait=wait)

    def answered_now(self, body: dict[str, Any], job: UUID) -> Response | None:
        """Return the answer to a call whose caller does not want to wait; None: callers always wait."""
        return None


class SingleAnswer(DoorView):
    """The answer of a call's provider, once it is there."""

    needs: ClassVar = {"GET": READ}
    query: ClassVar = {"GET": inputs.WaitInput.model_fields}
    root: ClassVar[str]

    def get(self, request: Request, pk: UUID) -> Response:
        self.read_query(inputs.WaitInput)
        job = calls.find_call(pk, project_id=self.caller.project_id)
        if job.status in UNFINISHED:
            return waiting_answer(job.pk, self.root)
        outcome = outcome_of(job)
        if outcome.is_answered:
            return Response(outcome.body, headers=names_of(job.pk))
        headers = {**NO_SECOND_TRY, **names_of(job.pk)}
        return Response(refused_body(outcome, self.root), refused_status(outcome), headers=headers)


def waiting_answer(job: UUID, root: str, *, wait: float = 0.0) -> Response:
    """
    Tell where the answer will be.

    Args:
        wait: How long the web process may hold this response back, in seconds.
    """
    address = f"{root}answers/{job}"
    headers = {"Location": address, "Retry-After": str(ASK_AGAIN_SECONDS), **names_of(job)}
    if wait:
        headers["X-QueueOps-Wait"] = f"{wait:g}"
    told = {"id": str(job), "object": "queueops.job", "status": "queued", "url": address}
    return Response(told, HTTPStatus.ACCEPTED, headers=headers)


def names_of(job: UUID) -> dict[str, str]:
    name = f"req_{job.hex}"
    # OpenAI's clients show the second, Anthropic's the third.
    return {"X-QueueOps-Job": str(job), "x-request-id": name, "request-id": name}


def refused_status(outcome: DoorOutcome) -> int:
    """Return 409 for a cancelled job; otherwise the provider's status if it means an error, else 502 (bad gateway)."""
    if outcome.state == JobState.CANCELLED:
        return HTTPStatus.CONFLICT
    status = outcome.status or 0
    return status if HTTPStatus.BAD_REQUEST <= status < 600 else HTTPStatus.BAD_GATEWAY  # noqa: PLR2004


def refused_body(outcome: DoorOutcome, root: str) -> dict[str, Any]:
    code = PROVIDERS_CODES.get(outcome.code, outcome.code)
    return in_form_of(root, refused_status(outcome), error_body(code, outcome.message))[1]


def wanted_seconds(request: Request) -> float:
    """
    How long a caller waits: the header X-QueueOps-Wait, in seconds; else a second less than the client's own time-out.

    Raises:
        BadDoorRequest
    """
    told = (request.headers.get(name, "") for name in CLIENTS_TIMEOUTS)
    patience = next((float(one) - 1 for one in told if _PLAIN_NUMBER.fullmatch(one)), MAX_WAIT_SECONDS)
    text = request.headers.get("X-QueueOps-Wait", str(max(0.0, min(MAX_WAIT_SECONDS, patience))))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise BadDoorRequest(f"X-QueueOps-Wait is a number of seconds from 0 to {MAX_WAIT_SECONDS}.")
    return seconds


def refuse_headers(request: Request, known: Mapping[str, str]) -> None:
    """
    Refuse what a client asks for by headers, which would be lost: jobs carry a body and no headers.

    Args:
        known: What to do instead, by the header's name.

    Raises:
        BadDoorRequest
    """
    for name, instead in known.items():
        if request.headers.get(name, "").strip():
            fault = f"headers are not passed on: {instead}"
            raise BadDoorRequest(f"{name}: {fault}.", fields={name: [fault]})


def is_repeated(request: Request) -> bool:
    """Whether an official client says that it sends the request again, because no answer came."""
    return request.headers.get(CLIENTS_TRIES, "0").strip("0") != ""


def _digest_of_refusal(request: Request) -> str:
    call = getattr(request, "scope", {}).get(CALL)  # tests of views have no scope
    return call.digest if call else ""


def page_of(
    rows: QuerySet[Any], size: int, *, after: UUID | None = None, newest: bool = True
) -> tuple[list[Any], bool]:
    """A page of rows, and whether there are more."""
    if after is not None:
        rows = rows.filter(pk__lt=after) if newest else rows.filter(pk__gt=after)
    found = list(rows.order_by("-pk" if newest else "pk")[: size + 1])
    return found[:size], len(found) > size
