"""Anthropic's API at /anthropic/v1/: batches of messages, single messages, models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from typing import Any, ClassVar

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.errors import WrongState
from jobs.api.views.base import CANCEL, READ, SUBMIT
from jobs.door import batches
from jobs.door.errors import BadDoorRequest, NoSuchObject
from jobs.door.files import id_in
from jobs.door.lines import LineReader, refuse_unknown_members
from jobs.door.models import DoorBatch, Protocol
from jobs.door.outcomes import DoorOutcome, outcomes_of, write_lines
from jobs.door.routes import known_models, service_of_model
from jobs.services.submit.documents.accept_document import Line
from jobs.states import JobState
from queueops.core.errors import QueueOpsError
from queueops.core.values.written import elements, member
from queueops.core.web.downloads import download, pieces_of
from queueops.rest.parsers import MAX_DOCUMENT_BYTES, read_document

from .base import DoorView, SingleAnswer, SingleCall, page_of, refuse_headers, refused_body

ROOT = "/anthropic/v1/"
BATCH = batches.PREFIXES[Protocol.ANTHROPIC]
ENDPOINT = "/v1/messages"
WINDOW = "24h"
CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # Anthropic's own rule; docs/reference/wire-facts.md
MAX_MESSAGE_BATCHES_LISTED = 1_000
LINES = "application/x-jsonl"
BETA = "beta"  # a query parameter of every call by `client.beta`; docs/reference/wire-facts.md
BETAS = "anthropic-beta"  # the header that switches features on
BATCHES_BETA = "message-batches-2024-09-24"  # Node's client sends it with each batch; the door has batches
ACCOUNT = "whose account is used is the route's credential's to say"
HEADERS = dict.fromkeys(("anthropic-workspace-id", "anthropic-user-profile-id"), ACCOUNT)
_LINE_ENDS = re.compile(r"[\r\n]+")


class MessageBatches(DoorView):
    needs: ClassVar = {"GET": READ, "POST": SUBMIT}
    query: ClassVar = {"GET": ("after_id", "before_id", "limit", BETA), "POST": (BETA,)}

    def get(self, request: Request) -> Response:
        rows = DoorBatch.objects.filter(project_id=self.caller.project_id, door=Protocol.ANTHROPIC)
        before, size = self.id_of("before_id", BATCH), self.limit(most=MAX_MESSAGE_BATCHES_LISTED)
        if before is None:
            found, more = page_of(rows, size, after=self.id_of("after_id", BATCH))
        else:
            found, more = page_of(rows, size, after=before, newest=False)
            found.reverse()
        counts = batches.counts_of(found)
        data = [message_batch_answer(batch, counts[batch.pk], request) for batch in found]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return Response({"data": data, "has_more": more, "first_id": first, "last_id": last})

    def post(self, request: Request) -> Response:
        refuse_betas(request)
        refuse_headers(request, HEADERS)
        raw = read_document(request, limit_bytes=MAX_DOCUMENT_BYTES)
        given, text = self.document(raw)
        refuse_unknown_members(given, ("requests",))
        if not isinstance(given.get("requests"), list):
            raise BadDoorRequest("requests is a list of {custom_id, params}.", fields={"requests": ["is a list"]})
        texts = elements(member(text, "requests") or "") or []
        made = batches.batch_of_requests(
            lambda reader: _jobs(reader, given["requests"], texts),
            raw,
            project_id=self.caller.project_id,
            actor=self.caller.actor,
            endpoint=ENDPOINT,
            window=WINDOW,
            key=self.idempotency_key() or "",
        )
        return Response(_told(made, request))


class MessageBatchOf(DoorView):
    needs: ClassVar = {"GET": READ, "DELETE": SUBMIT}
    query: ClassVar = {"GET": (BETA,), "DELETE": (BETA,)}

    def get(self, request: Request, name: str) -> Response:
        return Response(_told(_batch(self, name), request))

    def delete(self, request: Request, name: str) -> Response:
        _batch(self, name)
        raise WrongState("Batches go when their jobs' time is over: they are not deleted by hand.")


class CancelMessageBatch(DoorView):
    needs: ClassVar = {"POST": CANCEL}
    query: ClassVar = {"POST": (BETA,)}

    def post(self, request: Request, name: str) -> Response:
        batch = _batch(self, name)
        batches.cancel_door_batch(batch, actor=self.caller.actor)
        return Response(_told(batch, request))


class MessageBatchResults(DoorView):
    needs: ClassVar = {"GET": READ}
    query: ClassVar = {"GET": (BETA,)}

    def get(self, request: Request, name: str) -> HttpResponseBase:
        batch = _batch(self, name)
        if batches.counts_of([batch])[batch.pk].finished_at is None:
            raise WrongState("The batch has not ended: there are no results yet.")
        content = write_lines(outcomes_of(batch, answered=None), result_line)
        batches.ensure_whole(batch, content.lines, answered=None)
        return download(request._request, pieces_of(content.file), LINES)  # noqa: SLF001 - DRF has no other


class Messages(SingleCall):
    query: ClassVar = {"POST": (BETA,)}
    endpoint = ENDPOINT
    provider = Protocol.ANTHROPIC
    root = ROOT
    refused_headers = HEADERS

    def post(self, request: Request) -> Response:
        refuse_betas(request)
        return super().post(request)


class AnswerOfMessage(SingleAnswer):
    root = ROOT


class ClaudeModels(DoorView):
    needs: ClassVar = {"GET": READ}
    query: ClassVar = {"GET": ("after_id", "before_id", "limit", BETA)}

    def get(self, request: Request) -> Response:
        data = [_model_answer(name) for name, _ in known_models(self.caller.project_id)]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        return Response({"data": data, "has_more": False, "first_id": first, "last_id": last})


class ClaudeModelOf(DoorView):
    needs: ClassVar = {"GET": READ}
    query: ClassVar = {"GET": (BETA,)}

    def get(self, request: Request, name: str) -> Response:
        if service_of_model(name, self.caller.project_id) is None:
            raise NoSuchObject(f"No route takes the model {name!r}.", fields={"model": ["No route takes the model"]})
        return Response(_model_answer(name))


class NotAtAnthropics(DoorView):
    """An address that Anthropic has and the door does not."""

    needs: ClassVar = dict.fromkeys(("GET", "POST", "DELETE"), READ)

    def get(self, request: Request, *_: Any, **__: Any) -> Response:
        raise NoSuchObject(f"QueueOps does not do this: {request.path}. It takes messages, their batches, and models.")

    post = delete = get


def message_batch_answer(batch: DoorBatch, counts: batches.DoorCounts, request: Request) -> dict[str, Any]:
    name = BATCH + batch.pk.hex
    has_ended = counts.finished_at is not None
    status = "ended" if has_ended else "canceling" if batch.cancelled_at else "in_progress"
    results = request.build_absolute_uri(f"{ROOT}messages/batches/{name}/results")
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {
            "processing": counts.unfinished,
            "succeeded": counts.completed,
            "errored": counts.failed,
            "canceled": counts.cancelled,
            "expired": 0,
        },
        "created_at": batch.created_at,
        "expires_at": batch.complete_by,
        "ended_at": counts.finished_at,
        "archived_at": None,
        "cancel_initiated_at": batch.cancelled_at,
        "results_url": results if has_ended else None,
        "queueops": {"batch": batch.batch_id and str(batch.batch_id)},
    }


def _model_answer(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def result_line(outcome: DoorOutcome) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "succeeded", "message": outcome.body}
    if outcome.state == JobState.CANCELLED:
        result = {"type": "canceled"}
    elif not outcome.is_answered:
        result = {"type": "errored", "error": refused_body(outcome, ROOT)}
    return {"custom_id": outcome.custom_id, "result": result}


def refuse_betas(request: Request) -> None:
    """
    Raises:
        BadDoorRequest: The request asks for beta features, which would be lost: jobs carry a body and no headers.
    """
    betas = {beta.strip() for beta in request.headers.get(BETAS, "").split(",")}
    if betas - {"", BATCHES_BETA}:
        fault = "headers are not passed on: leave betas out"
        raise BadDoorRequest(f"{BETAS}: {fault}.", fields={BETAS: [fault]})


def _told(batch: DoorBatch, request: Request) -> dict[str, Any]:
    return message_batch_answer(batch, batches.counts_of([batch])[batch.pk], request)


def _batch(view: DoorView, name: str) -> DoorBatch:
    return batches.find_batch(id_in(name, BATCH), project_id=view.caller.project_id, door=Protocol.ANTHROPIC)


def _jobs(reader: LineReader, requests: list[Any], texts: list[str]) -> Iterator[Line]:
    for given, text in zip(requests, texts or repeat(""), strict=False):
        try:
            yield _job(reader, given, _LINE_ENDS.sub(" ", text))  # line ends: white space in JSON, but lines elsewhere
        except QueueOpsError as error:
            yield error


def _job(reader: LineReader, given: Any, text: str) -> str:
    if not isinstance(given, dict):
        raise BadDoorRequest("A request is an object: {custom_id, params}.")
    refuse_unknown_members(given, ("custom_id", "params"))
    custom_id = given.get("custom_id")
    if not isinstance(custom_id, str) or not CUSTOM_ID.fullmatch(custom_id):
        rule = "1 to 64 letters, digits, _ and -"
        raise BadDoorRequest(f"custom_id has {rule}.", fields={"custom_id": [rule]})
    return reader.job_of(custom_id, given.get("params"), member(text, "params"), where="params")
