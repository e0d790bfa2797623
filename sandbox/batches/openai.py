"""OpenAI's batches, over files of JSON lines."""

import json
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox.batches import answers, openai_files
from sandbox.batches.openai_lines import OpenAiLines
from sandbox.batches.store import ReceivedBatch
from sandbox.knobs.settings import Knobs
from sandbox.openai.errors import openai_error
from sandbox.provider import Arrival, CallIdentity
from sandbox.state import ARRIVAL, STATE

NAME = openai_files.NAME
ENDPOINTS = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/embeddings"})
MAX_METADATA = 16

_LINES = OpenAiLines()
_SERVER_ERROR = "The server had an error while processing your request."


def add_routes(app: web.Application) -> None:
    openai_files.add_routes(app)
    app.router.add_post("/v1/batches", create)
    app.router.add_get("/v1/batches", list_batches)
    app.router.add_get("/v1/batches/{batch_id}", read)
    app.router.add_post("/v1/batches/{batch_id}/cancel", cancel)


def serves(request: web.Request) -> bool:
    return request.path.startswith(("/v1/files", "/v1/batches"))


async def arrive(request: web.Request, caller: CallIdentity, knobs: Knobs) -> Arrival:
    """Take in the whole call; batches have quotas of their own, which are checked later."""
    if request.method == "POST" and request.path == openai_files.UPLOAD_PATH:
        await openai_files.take_upload(request)
    else:
        await request.read()
    return Arrival(is_write=request.method != "GET", caller=caller, quota_kind="batch")


async def create(request: web.Request) -> web.Response:
    body, state = await _body(request), request.app[STATE]
    file_id, project = body.get("input_file_id"), answers.project_of(request)
    caller = request[ARRIVAL].caller
    stored = state.batches.file(str(file_id), provider=NAME, project=project)
    if stored is None or stored.purpose != "batch" or caller is None:
        raise openai_error(400, f"Invalid value for 'input_file_id': no such file {file_id}.", param="input_file_id")
    if body.get("endpoint") not in ENDPOINTS:
        raise openai_error(400, f"Invalid value: '{body.get('endpoint')}'.", code="invalid_value", param="endpoint")
    if body.get("completion_window") != "24h":
        raise openai_error(400, "Invalid value: use '24h'.", code="invalid_value", param="completion_window")
    batch = ReceivedBatch(
        id=f"batch_{uuid4().hex}",
        provider=NAME,
        caller=caller,
        model=None,
        lines=[],
        details={
            "input_file_id": stored.id,
            "endpoint": body["endpoint"],
            "completion_window": "24h",
            "metadata": _metadata(body.get("metadata")),
        },
        window_seconds=state.gate.knobs.batches.window_seconds,
    )
    answers.start(request, batch, _LINES)
    return web.json_response(describe(batch))


async def read(request: web.Request) -> web.Response:
    _fail_sometimes(request)
    batch, rate = _batch(request), request.app[STATE].gate.knobs.batches.status_missing_rate
    answers.fail_sometimes(request, rate, openai_error(404, f"No batch found with id '{batch.id}'."))
    return web.json_response(describe(batch))


async def list_batches(request: web.Request) -> web.Response:
    """List batches, the newest first; with `after`, the batches that follow this id in the list."""
    _fail_sometimes(request)
    limit = request.query.get("limit", "20")
    if not (limit.isdecimal() and 1 <= int(limit) <= 100):  # noqa: PLR2004
        raise openai_error(400, "Invalid 'limit': from 1 to 100.", param="limit")
    found, has_more = request.app[STATE].batches.newest(
        provider=NAME, project=answers.project_of(request), after=request.query.get("after"), limit=int(limit)
    )
    ends = {"first_id": found[0].id, "last_id": found[-1].id} if found else {"first_id": None, "last_id": None}
    data = [describe(batch) for batch in found]
    return web.json_response({"object": "list", "data": data, **ends, "has_more": has_more})


async def cancel(request: web.Request) -> web.Response:
    batch = _batch(request)
    if batch.phase in {"validating", "in_progress"}:
        batch.enter("cancelling")
        batch.cancel_asked.set()
    elif batch.phase != "cancelling":
        raise openai_error(409, f"Cannot cancel a batch with status '{batch.phase}'.")
    return web.json_response(describe(batch))


def describe(batch: ReceivedBatch) -> dict[str, Any]:
    moments = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    errors = {"object": "list", "data": batch.errors} if batch.errors else None
    counts = {
        "total": len(batch.lines),
        "completed": batch.counts["succeeded"],
        "failed": batch.counts["errored"],
    }
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.details["endpoint"],
        "model": batch.model,
        "errors": errors,
        "input_file_id": batch.details["input_file_id"],
        "completion_window": batch.details["completion_window"],
        "status": batch.phase,
        "output_file_id": batch.details.get("output_file_id"),
        "error_file_id": batch.details.get("error_file_id"),
        "created_at": int(batch.created_at),
        "expires_at": int(batch.expires_at()),
        **{f"{name}_at": int(batch.entered[name]) if name in batch.entered else None for name in moments},
        "request_counts": counts,
        "usage": _usage(batch),
        "metadata": batch.details["metadata"],
    }


def _usage(batch: ReceivedBatch) -> dict[str, Any] | None:
    if not batch.has_ended():
        return None
    used = batch.usage
    return {
        "input_tokens": used["prompt"],
        "input_tokens_details": {"cached_tokens": used["cached"]},
        "output_tokens": used["output"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["prompt"] + used["output"],
    }


def _metadata(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    fits = isinstance(value, dict) and len(value) <= MAX_METADATA
    if not fits or not all(isinstance(text, str) and len(text) <= 512 for text in value.values()):  # noqa: PLR2004
        message = f"Invalid 'metadata': at most {MAX_METADATA} texts of 512 characters."
        raise openai_error(400, message, param="metadata")
    return dict(value)


def _batch(request: web.Request) -> ReceivedBatch:
    batch_id = request.match_info["batch_id"]
    return answers.own_batch(request, NAME, openai_error(404, f"No batch found with id '{batch_id}'."))


def _fail_sometimes(request: web.Request) -> None:
    rate = request.app[STATE].gate.knobs.batches.status_error_rate
    answers.fail_sometimes(request, rate, openai_error(500, _SERVER_ERROR))


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise openai_error(400, "We could not parse the JSON body of your request.")
    return body
