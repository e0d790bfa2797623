"""OpenAI's API at /openai/v1/: files, batches, single calls, models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar
from uuid import UUID

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.errors import WrongState
from jobs.api.views.base import CANCEL, READ, SUBMIT
from jobs.door import batches, calls, files
from jobs.door.errors import BadDoorRequest, NoSuchObject
from jobs.door.files import FILE, id_in
from jobs.door.lines import fault_of, refuse_unknown_members
from jobs.door.models import DoorBatch, DoorFile, Protocol
from jobs.door.outcomes import DoorOutcome, outcome_of, outcomes_of, write_lines
from jobs.door.previous import RESPONSES
from jobs.door.routes import known_models, service_of_model
from jobs.models import Job
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.documents.accept_document import MAX_LISTED_ERRORS
from jobs.states import RUNNING, TERMINAL, JobState
from queueops.core.web.asking import BODY
from queueops.core.web.downloads import download, pieces_of
from ratelimits.money.reports import saved_on_batch, spent_on_batch

from .base import DoorView, SingleAnswer, SingleCall, page_of, refuse_headers, refused_body

ROOT = "/openai/v1/"
RESPONSE = "resp_"
BATCH = batches.PREFIXES[Protocol.OPENAI]
OUTPUT, ERRORS = "file-output-", "file-error-"
ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/moderations")
MAX_FILES_LISTED = 10_000
MAX_BATCHES_LISTED = 100
LINES = "application/jsonl"
ACCOUNT = "whose account is used is the route's credential's to say"
HEADERS = {  # of calls and batches; docs/reference/wire-facts.md
    "OpenAI-Organization": f"{ACCOUNT}: leave organization (OPENAI_ORG_ID) out",
    "OpenAI-Project": f"{ACCOUNT}: leave project (OPENAI_PROJECT_ID) out",
    "OpenAI-Beta": "leave betas out",
}
_SECONDS = re.compile(r"[0-9]{1,9}")
ERRORS_IN_A_LIST = 20  # errors of a batch in a list of batches; the batch's own answer has all errors kept


class Files(DoorView):
    needs: ClassVar = {"GET": READ, "POST": SUBMIT}
    query: ClassVar = {"GET": ("after", "limit", "order", "purpose")}

    def get(self, request: Request) -> Response:
        rows = DoorFile.objects.filter(project_id=self.caller.project_id)
        if purpose := request.query_params.get("purpose"):
            rows = rows.filter(purpose=purpose)
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise BadDoorRequest("order is asc or desc.", fields={"order": ["asc or desc"]})
        size = self.limit(most=MAX_FILES_LISTED, default=MAX_FILES_LISTED)
        after = self.id_of("after", FILE)
        found, more = page_of(rows, size, after=after, newest=order == "desc")
        return Response(_listed([file_answer(file) for file in found], more=more))

    def post(self, request: Request) -> Response:
        given, file, name = _form_of(request)
        purpose = given.pop("purpose", "")
        kept = _kept(given)
        if given:
            refuse_unknown_members(given, ("file", "purpose", "expires_after"))
        stored = files.store_file(
            file.chunks(files.FILE_PART_BYTES),
            project_id=self.caller.project_id,
            actor=self.caller.actor,
            file_name=name.replace("\0", ""),
            purpose=purpose,
            kept=kept,
        )
        return Response(file_answer(stored))


class File(DoorView):
    needs: ClassVar = {"GET": READ, "DELETE": SUBMIT}

    def get(self, request: Request, name: str) -> Response:
        if (made := _made_file(self, name)) is not None:
            return Response(_made_file_answer(*made))
        return Response(file_answer(files.find_file(id_in(name, FILE), project_id=self.caller.project_id)))

    def delete(self, request: Request, name: str) -> Response:
        if _made_file(self, name) is not None:
            raise WrongState("It is made from the batch's jobs each time it is read: it goes with them.")
        files.delete_file(id_in(name, FILE), project_id=self.caller.project_id)
        return Response({"id": name, "object": "file", "deleted": True})


class FileContent(DoorView):
    needs: ClassVar = {"GET": READ}

    def get(self, request: Request, name: str) -> HttpResponseBase:
        made = _made_file(self, name)
        if made is None:
            content = files.copy_file(files.find_file(id_in(name, FILE), project_id=self.caller.project_id))
        else:
            batch, answered = made
            written = write_lines(outcomes_of(batch, answered=answered), output_line)
            batches.ensure_whole(batch, written.lines, answered=answered)
            content = written.file
        return download(request._request, pieces_of(content), LINES)  # noqa: SLF001 - DRF has no other


class Batches(DoorView):
    needs: ClassVar = {"GET": READ, "POST": SUBMIT}
    query: ClassVar = {"GET": ("after", "limit")}

    def get(self, request: Request) -> Response:
        rows = DoorBatch.objects.filter(project_id=self.caller.project_id, door=Protocol.OPENAI)
        found, more = page_of(rows, self.limit(most=MAX_BATCHES_LISTED), after=self.id_of("after", BATCH))
        counts = batches.counts_of(found)
        data = [batch_answer(batch, counts[batch.pk], most_errors=ERRORS_IN_A_LIST) for batch in found]
        return Response(_listed(data, more=more))

    def post(self, request: Request) -> Response:
        refuse_headers(request, HEADERS)
        given, _ = self.document()
        refuse_unknown_members(given, ("input_file_id", "endpoint", "completion_window", "metadata"))
        endpoint = given.get("endpoint")
        if endpoint not in ENDPOINTS:
            raise BadDoorRequest(f"endpoint is one of {', '.join(ENDPOINTS)}.", fields={"endpoint": ["is one of"]})
        name = given.get("input_file_id")
        if not isinstance(name, str):
            raise BadDoorRequest("input_file_id is missing.", fields={"input_file_id": ["missing"]})
        made = batches.batch_of_file(
            id_in(name, FILE, field="input_file_id"),
            project_id=self.caller.project_id,
            actor=self.caller.actor,
            endpoint=endpoint,
            window=given.get("completion_window", ""),
            metadata=batches.check_metadata(given.get("metadata")),
            key=self.idempotency_key() or "",
        )
        return Response(batch_answer(made, batches.counts_of([made])[made.pk]))


class BatchOf(DoorView):
    needs: ClassVar = {"GET": READ}

    def get(self, request: Request, name: str) -> Response:
        return Response(_told(_batch(self, name)))


class CancelBatchOf(DoorView):
    needs: ClassVar = {"POST": CANCEL}

    def post(self, request: Request, name: str) -> Response:
        batch = _batch(self, name)
        if batches.counts_of([batch])[batch.pk].unfinished == 0:
            raise WrongState("It has ended: there is nothing to cancel.")
        batches.cancel_door_batch(batch, actor=self.caller.actor)
        return Response(_told(batch))


class OpenAiCall(SingleCall):
    provider = Protocol.OPENAI
    root = ROOT
    refused_headers = HEADERS

    def answered_now(self, body: dict[str, Any], job: UUID) -> Response | None:
        if self.endpoint != RESPONSES or not body.get("background"):
            return None
        return Response(response_answer(calls.find_call(job, project_id=self.caller.project_id)))


class AnswerOfCall(SingleAnswer):
    root = ROOT


class ResponseOf(DoorView):
    needs: ClassVar = {"GET": READ}

    def get(self, request: Request, name: str) -> Response:
        return Response(response_answer(_response(self, name)))


class CancelResponse(DoorView):
    needs: ClassVar = {"POST": CANCEL}

    def post(self, request: Request, name: str) -> Response:
        job = _response(self, name)
        cancel_jobs([job.pk], actor=self.caller.actor, reason="cancelled by its producer")
        return Response(response_answer(calls.find_call(job.pk, project_id=self.caller.project_id)))


class Models(DoorView):
    needs: ClassVar = {"GET": READ}

    def get(self, request: Request) -> Response:
        found = known_models(self.caller.project_id)
        return Response({"object": "list", "data": [_model_answer(*one) for one in found]})


class ModelOf(DoorView):
    needs: ClassVar = {"GET": READ}

    def get(self, request: Request, name: str) -> Response:
        found = service_of_model(name, self.caller.project_id)
        if found is None:
            raise NoSuchObject(f"No route takes the model {name!r}.", fields={"model": ["No route takes the model"]})
        return Response(_model_answer(name, found))


class NotHere(DoorView):
    """An address that OpenAI has and the door does not."""

    needs: ClassVar = dict.fromkeys(("GET", "POST", "DELETE"), READ)

    def get(self, request: Request, *_: Any, **__: Any) -> Response:
        raise NoSuchObject(
            f"QueueOps does not do this: {request.path}. It takes files, batches, responses, chat completions, "
            "embeddings, moderations and models."
        )

    post = delete = get


# --- Answers ---------------------------------------------------------------------------------------------------------


def file_answer(file: DoorFile) -> dict[str, Any]:
    return {
        "id": FILE + file.pk.hex,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": _seconds(file.created_at),
        "expires_at": _seconds(file.expires_at),
        "filename": file.file_name,
        "purpose": file.purpose,
        "status": "processed",
    }


def _made_file_answer(batch: DoorBatch, answered: bool) -> dict[str, Any]:  # noqa: FBT001 - of _made_file
    return {
        "id": (OUTPUT if answered else ERRORS) + batch.pk.hex,
        "object": "file",
        "bytes": 0,  # the size is not known before the file is made, which is when it is read
        "created_at": _seconds(batch.created_at),
        "filename": f"{BATCH}{batch.pk.hex}_{'output' if answered else 'error'}.jsonl",
        "purpose": "batch_output",
        "status": "processed",
    }


def batch_answer(
    batch: DoorBatch, counts: batches.DoorCounts, *, most_errors: int = MAX_LISTED_ERRORS
) -> dict[str, Any]:
    status = _status(batch, counts)
    ended = None if counts.finished_at is None else _seconds(counts.finished_at)
    created = _seconds(batch.created_at)
    return {
        "id": BATCH + batch.pk.hex,
        "object": "batch",
        "endpoint": batch.endpoint,
        "input_file_id": FILE + batch.file_id.hex if batch.file_id else None,
        "completion_window": batch.window,
        "status": status,
        "errors": _errors(batch, most_errors),
        "output_file_id": OUTPUT + batch.pk.hex if counts.completed and ended else None,
        "error_file_id": ERRORS + batch.pk.hex if counts.failed + counts.cancelled and ended else None,
        "created_at": created,
        "in_progress_at": created if batch.batch_id else None,
        "expires_at": _seconds(batch.complete_by),
        "finalizing_at": ended,
        "completed_at": ended if status == "completed" else None,
        "failed_at": created if status == "failed" else None,
        "expired_at": None,
        "cancelling_at": None if batch.cancelled_at is None else _seconds(batch.cancelled_at),
        "cancelled_at": ended if status == "cancelled" else None,
        "request_counts": {
            "total": counts.total,
            "completed": counts.completed,
            "failed": counts.failed + (0 if batch.cancelled_at else counts.cancelled),
        },
        "metadata": batch.metadata,
        "queueops": {"batch": batch.batch_id and str(batch.batch_id)},
    }


def _status(batch: DoorBatch, counts: batches.DoorCounts) -> str:
    if batch.batch_id is None:
        return "failed"
    if counts.unfinished:
        return "cancelling" if batch.cancelled_at else "in_progress"
    if counts.finished_at is None:
        return "finalizing"
    return "cancelled" if batch.cancelled_at and counts.cancelled else "completed"


def _errors(batch: DoorBatch, most: int) -> dict[str, Any] | None:
    if not isinstance(batch.errors, list):  # no errors, or a text if they may not be read
        return None
    told = []
    for error in batch.errors[:most]:
        where, said = fault_of(error["fields"], error["message"])
        told.append({"code": error["code"], "line": error["line"] or None, "message": said, "param": where or None})
    return {"object": "list", "data": told}


def _told(batch: DoorBatch) -> dict[str, Any]:
    """A batch with what it cost."""
    answer = batch_answer(batch, batches.counts_of([batch])[batch.pk])
    spent = spent_on_batch(batch.batch_id) if batch.batch_id else None
    answer["queueops"] |= {
        "cost_money": None if spent is None or spent.unpriced else spent.money,
        "saved_money": saved_on_batch(batch.batch_id) if spent and batch.batch_id else None,
        "url": batch.batch_id and f"/api/v1/batches/{batch.batch_id}/",
    }
    return answer


def output_line(outcome: DoorOutcome) -> dict[str, Any]:
    """A line of the output or the error file."""
    answered: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    if outcome.is_answered:
        answered = {"status_code": outcome.status, "request_id": f"req_{outcome.job.hex}", "body": outcome.body}
    elif outcome.status is not None and outcome.status >= HTTPStatus.BAD_REQUEST:
        body = refused_body(outcome, ROOT)
        answered = {"status_code": outcome.status, "request_id": f"req_{outcome.job.hex}", "body": body}
    else:
        code = "batch_cancelled" if outcome.state == JobState.CANCELLED else outcome.code
        error = {"code": code, "message": outcome.message}
    return {
        "id": f"batch_req_{outcome.job.hex}",
        "custom_id": outcome.custom_id,
        "response": answered,
        "error": error,
    }


def response_answer(job: Job) -> dict[str, Any]:
    """Return a background response: the provider's own, once there is one, with our id instead of the provider's."""
    name = RESPONSE + job.pk.hex
    if job.status in TERMINAL:
        outcome = outcome_of(job)
        if outcome.is_answered and isinstance(outcome.body, dict):
            return {**outcome.body, "id": name, "background": True}
        status = "cancelled" if job.status == JobState.CANCELLED else "failed"
        error = None if status == "cancelled" else {"code": "server_error", "message": outcome.message}
    else:
        status, error = "in_progress" if job.status in RUNNING else "queued", None
    return {
        "id": name,
        "object": "response",
        "created_at": _seconds(job.created_at),
        "status": status,
        "background": True,
        "error": error,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": job.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _model_answer(name: str, service: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": service}


def _listed(data: Sequence[dict[str, Any]], *, more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": more,
    }


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


# --- Requests --------------------------------------------------------------------------------------------------------


def _batch(view: DoorView, name: str) -> DoorBatch:
    return batches.find_batch(id_in(name, BATCH), project_id=view.caller.project_id, door=Protocol.OPENAI)


def _response(view: DoorView, name: str) -> Job:
    """
    Raises:
        NoSuchObject
    """
    try:
        return calls.find_call(id_in(name, RESPONSE), project_id=view.caller.project_id)
    except NoSuchObject:
        raise NoSuchObject(
            f"There is no response {name[:80]!r} here. By its id a response is found that was created with "
            "background=True; the answer of another is at answers/ and the id in its header X-QueueOps-Job.",
            fields={"id": ["There is no response"]},
        ) from None


def _made_file(view: DoorView, name: str) -> tuple[DoorBatch, bool] | None:
    """The batch whose output or error file this is, and whether the file has answers; None: the file was uploaded."""
    for prefix, answered in ((OUTPUT, True), (ERRORS, False)):
        if name.startswith(prefix):
            pk = id_in(name, prefix)
            kind = Protocol.OPENAI
            return batches.find_batch(pk, project_id=view.caller.project_id, door=kind), answered
    return None


class NamelessHandler(TemporaryFileUploadHandler):
    """Stores a file on the disk under a fixed name: the client's name, kept in `given`, may be too long for a disk."""

    given = ""

    def new_file(self, field_name: str, file_name: str, *args: Any, **kwargs: Any) -> None:
        self.given = file_name
        super().new_file(field_name, "file", *args, **kwargs)


def _form_of(request: Request) -> tuple[dict[str, str], Any, str]:
    """
    Read a form with one file; returns its fields, the file, which is on the disk, and the file's name.

    Raises:
        BadDoorRequest
    """
    body = request.META.get(BODY)
    source: Any = request._request if body is None else body  # noqa: SLF001 - DRF has no other
    meta = dict(request.META)
    if body is not None:  # a body in chunks has no length of its own
        body.seek(0, 2)
        meta["CONTENT_LENGTH"] = str(body.tell())
        body.seek(0)
    handler = NamelessHandler(request._request)  # noqa: SLF001
    try:
        given, found = MultiPartParser(meta, source, [handler], "utf-8").parse()
    except (MultiPartParserError, SuspiciousOperation) as error:  # the second: too many parts, or too large parts
        raise BadDoorRequest(f"Send multipart/form-data with purpose and file: {error}.") from None
    if list(found) != ["file"] or len(found.getlist("file")) != 1:
        raise BadDoorRequest("Send one file, as the part `file`.", fields={"file": ["Send one file"]})
    return {name: str(value) for name, value in given.items()}, found["file"], handler.given


def _kept(given: dict[str, str]) -> timedelta:
    """
    Take `expires_after` out of a form.

    Raises:
        BadDoorRequest
    """
    anchor, seconds = given.pop("expires_after[anchor]", None), given.pop("expires_after[seconds]", None)
    if anchor is None and seconds is None:
        return files.MAX_KEPT
    if anchor != "created_at" or seconds is None or not _SECONDS.fullmatch(seconds):
        raise BadDoorRequest(
            "expires_after is an anchor, created_at, and seconds.", fields={"expires_after": ["an anchor, created_at"]}
        )
    return timedelta(seconds=int(seconds))
