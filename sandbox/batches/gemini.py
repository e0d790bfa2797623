"""Gemini's batches: requests within the call or in a file, results within the operation or in a file."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox.batches import answers, gemini_files
from sandbox.batches.gemini_lines import GeminiLines, read_requests
from sandbox.batches.intake import read_body
from sandbox.batches.slices import slices
from sandbox.batches.store import ReceivedBatch
from sandbox.envelopes import ApiError, google_error
from sandbox.gemini import errors
from sandbox.gemini.answers import prompt_of
from sandbox.knobs.settings import Knobs
from sandbox.llm import count_tokens
from sandbox.provider import Arrival, CallIdentity
from sandbox.state import ARRIVAL, BODY, STATE

NAME = gemini_files.NAME

_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main"
_PHASES = {
    "validating": "PENDING",
    "completed": "SUCCEEDED",
    "failed": "FAILED",
    "expired": "EXPIRED",
    "cancelled": "CANCELLED",
}
_HERE = '"@"'


def add_routes(app: web.Application) -> None:
    gemini_files.add_routes(app)
    app.router.add_post("/v1beta/models/{model:[^/:]+}:batchGenerateContent", create)
    app.router.add_get("/v1beta/batches", list_batches)
    app.router.add_get("/v1beta/batches/{batch_id:[^/:]+}", read)
    app.router.add_delete("/v1beta/batches/{batch_id:[^/:]+}", delete)
    app.router.add_post("/v1beta/batches/{batch_id:[^/:]+}:cancel", cancel)


def serves(request: web.Request) -> bool:
    parts = request.path.split("/")
    is_file = "files" in parts or parts[1] in {"upload", "download"}
    return is_file or request.path.startswith("/v1beta/batches") or request.path.endswith(":batchGenerateContent")


async def arrive(request: web.Request, caller: CallIdentity, knobs: Knobs) -> Arrival:
    """Take in the whole call; batches have a quota of their own, which is checked later."""
    is_upload = request.path.startswith("/upload/")
    most = knobs.gemini.batch_file_bytes if is_upload else knobs.gemini.batch_bytes

    def too_large() -> ApiError:
        return google_error(400, f"Request payload size exceeds the limit: {most} bytes.")

    request[BODY] = await read_body(request, most_bytes=most, too_large=too_large)
    model = request.match_info.get("model")
    return Arrival(is_write=request.method != "GET", caller=caller, quota_kind="batch", model=model)


async def create(request: web.Request) -> web.Response:
    """
    Make a batch.

    Raises:
        ApiError: 400, or 429 when too many tokens wait; no batch is made.
    """
    state, project, model = request.app[STATE], answers.project_of(request), request.match_info["model"]
    asked, lines = await read_requests(request[BODY], lambda name: _stored(request, name))
    knobs, tokens = state.gate.knobs.gemini, 0
    async for some in slices(lines):
        tokens += sum(count_tokens(prompt_of(line.body), factor=knobs.token_factor) for line in some)
    waiting = state.batches.enqueued_tokens(provider=NAME, project=project, model=model)
    if knobs.enqueued_tokens is not None and waiting + tokens > knobs.enqueued_tokens:
        raise google_error(429, errors.EXHAUSTED)
    batch = ReceivedBatch(
        id=uuid4().hex,
        provider=NAME,
        caller=request[ARRIVAL].caller or CallIdentity(project, "default"),
        model=model,
        lines=lines,
        details={
            "display_name": asked.display_name,
            "file_name": asked.file_name,
            "says_keys": knobs.batch_keys,
        },
        window_seconds=state.gate.knobs.batches.window_seconds,
        enqueued_tokens=tokens,
    )
    answers.start(request, batch, GeminiLines())
    return web.json_response(describe(batch))


async def read(request: web.Request) -> web.StreamResponse:
    """Describe a batch, with its results once it has some."""
    batch, knobs = _batch(request), request.app[STATE].gate.knobs.batches
    rate = knobs.results_error_rate if batch.has_ended() else knobs.status_error_rate
    answers.fail_sometimes(request, rate, google_error(503, errors.MESSAGES[503]))
    answers.fail_sometimes(request, knobs.status_missing_rate, google_error(404, "Requested entity was not found."))
    found = batch.results.get("inline")
    if batch.phase != "completed" or found is None:
        return web.json_response(describe(batch))
    around = json.dumps(describe(batch, inline="@")).split(_HERE)

    def pieces() -> Iterator[bytes]:
        yield around[0].encode()
        for after in around[1:]:
            yield b"["
            for number, piece in enumerate(found.pieces(b",")):
                yield (b"," if number else b"") + piece[:-1]
            yield b"]" + after.encode()

    return await answers.send_pieces(request, pieces(), [found], "application/json")


async def list_batches(request: web.Request) -> web.Response:
    """List batches, the newest first, without results."""
    rate = request.app[STATE].gate.knobs.batches.status_error_rate
    answers.fail_sometimes(request, rate, google_error(503, errors.MESSAGES[503]))
    size = request.query.get("pageSize", "50")
    if not (size.isdecimal() and 1 <= int(size) <= 1000):  # noqa: PLR2004
        raise google_error(400, "page_size must be from 1 to 1000.")
    found, has_more = request.app[STATE].batches.newest(
        provider=NAME,
        project=answers.project_of(request),
        after=request.query.get("pageToken") or None,
        limit=int(size),
    )
    following = {"nextPageToken": found[-1].id} if has_more else {}
    return web.json_response({"operations": [describe(batch) for batch in found], **following})


async def cancel(request: web.Request) -> web.Response:
    """Ask a batch to end; a request that comes too late changes nothing."""
    batch = _batch(request)
    if batch.phase in {"validating", "in_progress"}:
        batch.enter("cancelling")
        batch.cancel_asked.set()
    return web.json_response({})


async def delete(request: web.Request) -> web.Response:
    """Delete an operation; its batch goes on if it runs."""
    _batch(request).is_deleted = True
    return web.json_response({})


def describe(batch: ReceivedBatch, inline: str | None = None) -> dict[str, Any]:
    """Return the operation. Its output is under `response` and again under `metadata.output`."""
    ended_at = batch.entered.get(batch.phase) if batch.has_ended() else None
    output = _output(batch, inline)
    metadata = {
        "@type": f"{_TYPE}.GenerateContentBatch",
        "model": f"models/{batch.model}",
        "displayName": batch.details["display_name"],
        **({"output": output} if output else {}),
        "createTime": _moment(batch.created_at),
        **({"endTime": _moment(ended_at)} if ended_at else {}),
        "updateTime": _moment(max([batch.created_at, *batch.entered.values()])),
        "batchStats": _stats(batch),
        "state": f"BATCH_STATE_{_PHASES.get(batch.phase, 'RUNNING')}",
        "name": f"batches/{batch.id}",
    }
    operation: dict[str, Any] = {"name": f"batches/{batch.id}", "metadata": metadata}
    if not batch.has_ended():
        return operation
    operation["done"] = True
    if output:
        operation["response"] = {"@type": f"{_TYPE}.GenerateContentBatchOutput", **output}
    elif batch.phase != "completed":
        code = {"cancelled": 1, "expired": 4}.get(batch.phase, 13)
        operation["error"] = {"code": code, "message": f"The batch was not completed: {batch.phase}."}
    return operation


def _output(batch: ReceivedBatch, inline: str | None) -> dict[str, Any]:
    if batch.phase != "completed":
        return {}
    if "responses_file" in batch.details:
        return {"responsesFile": batch.details["responses_file"]}
    return {} if inline is None else {"inlinedResponses": {"inlinedResponses": inline}}


def _stats(batch: ReceivedBatch) -> dict[str, str]:
    """Return the counts of requests as texts; a count of zero is left out."""
    succeeded = batch.counts["succeeded"]
    failed = sum(batch.counts[name] for name in ("errored", "canceled", "expired"))
    counts = {
        "requestCount": len(batch.lines),
        "successfulRequestCount": succeeded,
        "failedRequestCount": failed,
        "pendingRequestCount": len(batch.lines) - succeeded - failed,
    }
    return {name: str(count) for name, count in counts.items() if count}


def _stored(request: web.Request, name: str) -> bytes:
    return gemini_files.stored_file(request, name.removeprefix("files/")).data


def _batch(request: web.Request) -> ReceivedBatch:
    return answers.own_batch(request, NAME, google_error(404, errors.MESSAGES[404]))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
