"""Anthropic's message batches: the requests come within the call, the results as lines of JSON."""

import json
import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox import clock
from sandbox.anthropic import messages, quotas
from sandbox.anthropic.errors import MESSAGES, anthropic_error
from sandbox.batches import answers
from sandbox.batches.intake import read_body
from sandbox.batches.run import LineAnswer
from sandbox.batches.slices import parse_with_list, slices
from sandbox.batches.store import ReceivedBatch, ReceivedLine
from sandbox.envelopes import ApiError
from sandbox.knobs.settings import Knobs
from sandbox.provider import Arrival, CallIdentity, CallTokens
from sandbox.quotas.book import Quota, QuotaCost
from sandbox.state import ARRIVAL, BODY, STATE, State

NAME = quotas.NAME

_PATH = "/v1/messages/batches"
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def add_routes(app: web.Application) -> None:
    app.router.add_post(_PATH, create)
    app.router.add_get(_PATH, list_batches)
    app.router.add_get(_PATH + "/{batch_id}", read)
    app.router.add_delete(_PATH + "/{batch_id}", delete)
    app.router.add_post(_PATH + "/{batch_id}/cancel", cancel)
    app.router.add_get(_PATH + "/{batch_id}/results", results)


def serves(request: web.Request) -> bool:
    return request.path.startswith(_PATH)


async def arrive(request: web.Request, caller: CallIdentity, knobs: Knobs) -> Arrival:
    """Take in the whole call. Calls about batches have a quota of their own, over all models."""
    most = knobs.anthropic.batch_bytes

    def too_large() -> ApiError:
        return anthropic_error(413, f"Request exceeds the maximum size of {most} bytes")

    request[BODY] = await read_body(request, most_bytes=most, too_large=too_large)
    charges = []
    if knobs.anthropic.batch_calls_per_minute is not None:
        quota = Quota(NAME, "BatchRPM", "requests", knobs.anthropic.batch_calls_per_minute, knobs.anthropic.rule())
        charges.append(QuotaCost(quota, (("project", caller.project), ("model", "message batches"))))
    return Arrival(
        is_write=request.method != "GET",
        caller=caller,
        quota_kind="batch",
        charges=charges,
        rejected_calls_count=knobs.anthropic.rejected_calls_count,
    )


async def create(request: web.Request) -> web.Response:
    state, caller = request.app[STATE], request[ARRIVAL].caller
    try:
        _, requests = await parse_with_list(request[BODY], "requests")
    except (ValueError, RecursionError):
        raise anthropic_error(400, "requests: Field required") from None
    knobs = state.gate.knobs.anthropic
    if not 1 <= len(requests) <= knobs.batch_requests:
        raise anthropic_error(400, f"requests: List should have from 1 to {knobs.batch_requests} items")
    lines = await _lines(requests)
    project = answers.project_of(request)
    if knobs.queued_requests is not None:
        waiting = state.batches.waiting_lines(provider=NAME, project=project)
        if waiting + len(lines) > knobs.queued_requests:
            message = f"This would exceed your limit of {knobs.queued_requests:,} batch requests in the queue."
            raise anthropic_error(429, message)
    batch = ReceivedBatch(
        id=f"msgbatch_{uuid4().hex[:24]}",
        provider=NAME,
        caller=caller or CallIdentity(project, "default"),
        model=None,
        lines=lines,
        details={},
        window_seconds=state.gate.knobs.batches.window_seconds,
    )
    answers.start(request, batch, AnthropicLines())
    return web.json_response(describe(batch, request))


async def read(request: web.Request) -> web.Response:
    _fail_sometimes(request)
    batch, rate = _batch(request), request.app[STATE].gate.knobs.batches.status_missing_rate
    answers.fail_sometimes(request, rate, anthropic_error(404, f"Message batch {batch.id} was not found."))
    return web.json_response(describe(batch, request))


async def list_batches(request: web.Request) -> web.Response:
    """List batches, the newest first; with `after_id`, the batches that follow this id in the list."""
    _fail_sometimes(request)
    limit = request.query.get("limit", "20")
    if not (limit.isdecimal() and 1 <= int(limit) <= 1000):  # noqa: PLR2004
        raise anthropic_error(400, "limit: from 1 to 1000")
    if "before_id" in request.query:
        raise anthropic_error(400, "before_id: the sandbox goes forward only")
    found, has_more = request.app[STATE].batches.newest(
        provider=NAME, project=answers.project_of(request), after=request.query.get("after_id"), limit=int(limit)
    )
    ends = {"first_id": found[0].id, "last_id": found[-1].id} if found else {"first_id": None, "last_id": None}
    return web.json_response({"data": [describe(batch, request) for batch in found], "has_more": has_more, **ends})


async def cancel(request: web.Request) -> web.Response:
    batch = _batch(request)
    if batch.phase in {"validating", "in_progress"}:
        batch.enter("cancelling")
        batch.cancel_asked.set()
    elif batch.has_ended():
        raise anthropic_error(400, f"Batch {batch.id} cannot be canceled: its processing has ended.")
    return web.json_response(describe(batch, request))


async def delete(request: web.Request) -> web.Response:
    batch = _batch(request)
    if not batch.has_ended():
        raise anthropic_error(400, f"Batch {batch.id} cannot be deleted while it is being processed.")
    batch.is_deleted = True
    return web.json_response({"id": batch.id, "type": "message_batch_deleted"})


async def results(request: web.Request) -> web.StreamResponse:
    batch = _batch(request)
    if not batch.has_ended():
        raise anthropic_error(404, f"Batch {batch.id} has no results yet.")
    rate = request.app[STATE].gate.knobs.batches.results_error_rate
    answers.fail_sometimes(request, rate, anthropic_error(500, MESSAGES[500]))
    return await answers.send_results(request, list(batch.results.values()), "application/x-jsonl")


def describe(batch: ReceivedBatch, request: web.Request) -> dict[str, Any]:
    """Describe a batch. Its requests count as `processing` until the whole batch has ended."""
    names = ("succeeded", "errored", "canceled", "expired")
    counts = {name: batch.counts[name] if batch.has_ended() else 0 for name in names}
    ended_at = batch.entered.get(batch.phase) if batch.has_ended() else None
    status = "ended" if batch.has_ended() else "canceling" if batch.phase == "cancelling" else "in_progress"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {"processing": 0 if batch.has_ended() else len(batch.lines), **counts},
        "created_at": _moment(batch.created_at),
        "expires_at": _moment(batch.expires_at()),
        "ended_at": _moment(ended_at),
        "cancel_initiated_at": _moment(batch.entered.get("cancelling")),
        "archived_at": None,
        "results_url": f"{request.url.origin()}{_PATH}/{batch.id}/results" if batch.has_ended() else None,
    }


class AnthropicLines:
    """Each line is a request of the Messages API; a fault in it is an error of this line alone."""

    keeps_half_done = True
    can_fail = False

    async def load(self, batch: ReceivedBatch, state: State) -> list[dict[str, Any]]:
        return []

    def answer(self, line: ReceivedLine, batch: ReceivedBatch, state: State) -> LineAnswer:
        knobs, body = state.gate.knobs.anthropic, messages.check(line.body)
        model, project = body["model"], batch.caller.project
        if knobs.models is not None and model not in knobs.models:
            raise anthropic_error(404, f"model: {model}")
        answer, prompt = messages.answer_of(body, knobs)
        now = clock.now()
        read, written = state.prompt_cache.look_up(prompt, project=project, model=model, now=now)
        state.prompt_cache.keep(prompt, project=project, model=model, until=now + knobs.cache_seconds)
        tokens = CallTokens(answer.prompt_tokens, answer.output_tokens, read, written)
        message = messages.message_of(answer, model=model, tokens=tokens, tier="batch")
        return LineAnswer(message, model, tokens, prompt.text)

    def error(self, status: int) -> ApiError:
        return anthropic_error(status, MESSAGES.get(status, "Internal server error"))

    def file_of(self, line: ReceivedLine) -> str | None:
        return "results"

    def render(self, line: ReceivedLine, batch: ReceivedBatch) -> str:
        name = {"succeeded": "message", "errored": "error"}.get(line.outcome or "")
        result = {"type": line.outcome} if name is None else {"type": line.outcome, name: line.answer}
        return json.dumps({"custom_id": line.custom_id, "result": result})

    def finish(self, batch: ReceivedBatch, state: State) -> None:
        """Do nothing: the results stay with the batch."""


async def _lines(requests: list[Any]) -> list[ReceivedLine]:
    """
    Check the requests for faults that refuse the whole batch at once.

    Raises:
        ApiError: 400; no batch is made.
    """
    lines: list[ReceivedLine] = []
    seen: set[str] = set()
    async for some in slices(requests):
        for asked in some:
            place = f"requests.{len(lines)}"
            custom_id, params = (asked.get("custom_id"), asked.get("params")) if isinstance(asked, dict) else ("", None)
            if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
                raise anthropic_error(400, f"{place}.custom_id: String should match pattern '^{_CUSTOM_ID.pattern}$'")
            if custom_id in seen:
                raise anthropic_error(400, f"{place}.custom_id: '{custom_id}' is not unique")
            if not isinstance(params, dict):
                raise anthropic_error(400, f"{place}.params: Field required")
            seen.add(custom_id)
            lines.append(ReceivedLine(custom_id, params))
    return lines


def _batch(request: web.Request) -> ReceivedBatch:
    batch_id = request.match_info["batch_id"]
    return answers.own_batch(request, NAME, anthropic_error(404, f"Message batch {batch_id} was not found."))


def _fail_sometimes(request: web.Request) -> None:
    rate = request.app[STATE].gate.knobs.batches.status_error_rate
    answers.fail_sometimes(request, rate, anthropic_error(500, MESSAGES[500]))


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
