"""Anthropic: the Messages API, with quotas of requests, input and output tokens per organization and model."""

import json
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox import clock, streams
from sandbox.anthropic import quotas, stream
from sandbox.anthropic.errors import MESSAGES, anthropic_error, too_many_requests
from sandbox.anthropic.messages import answer_of, check, message_of
from sandbox.batches import anthropic as batches
from sandbox.billing import digest_of
from sandbox.envelopes import ApiError
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.knobs.settings import Knobs
from sandbox.llm import Omissions, call_tokens, is_bad_key
from sandbox.provider import Arrival, CallTokens, bearer_token, caller_of
from sandbox.state import ARRIVAL, CALL, FATE, STATE

NAME = quotas.NAME

_COUNT = "/v1/messages/count_tokens"


class Anthropic:
    name = NAME

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/messages", create)
        app.router.add_post(_COUNT, count)
        batches.add_routes(app)

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        key = request.headers.get("x-api-key") or bearer_token(request)
        if not key:
            raise anthropic_error(401, "x-api-key header is required")
        if is_bad_key(key, knobs.anthropic):
            raise anthropic_error(401, "invalid x-api-key")
        if "anthropic-version" not in request.headers:
            raise anthropic_error(400, "anthropic-version: header is required")
        if knobs.anthropic.credit_gone:
            raise anthropic_error(402, MESSAGES[402])
        if request.match_info.http_exception is not None:
            return Arrival(is_write=False)
        caller = caller_of(key)
        if batches.serves(request):
            return await batches.arrive(request, caller, knobs)
        body = await _body(request)
        model = body["model"]
        if knobs.anthropic.models is not None and model not in knobs.anthropic.models:
            raise anthropic_error(404, f"model: {model}")
        if request.path == _COUNT:
            return Arrival(is_write=False, caller=caller, model=model)
        answer, prompt = answer_of(body, knobs.anthropic)
        read, written = request.app[STATE].prompt_cache.look_up(
            prompt, project=caller.project, model=model, now=clock.now()
        )
        room = knobs.anthropic.context_tokens.get(model)
        if room is not None and answer.prompt_tokens > room:
            raise anthropic_error(400, f"prompt is too long: {answer.prompt_tokens} tokens > {room} maximum")
        tokens = CallTokens(answer.prompt_tokens, answer.output_tokens, read, written)
        return Arrival(
            is_write=True,
            caller=caller,
            quota_kind="generate",
            model=model,
            cost_tokens=tokens.prompt - tokens.cached + tokens.output,
            tokens=tokens,
            charges=quotas.charges(caller, model, tokens, knobs.anthropic, max_tokens=body["max_tokens"]),
            rejected_calls_count=knobs.anthropic.rejected_calls_count,
        )

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        status = fate.status or UNAVAILABLE
        if status == TOO_MANY_REQUESTS:
            return too_many_requests(fate.violations)
        return self.error(status, MESSAGES.get(status, f"Refused by the sandbox ({fate.cause})."))

    def error(self, status: int, message: str) -> ApiError:
        return anthropic_error(status, message)

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        response.headers.update(_headers(request))
        fate = request.get(FATE)
        wait = quotas.retry_after(fate.violations) if fate is not None else None
        if knobs.anthropic.retry_after and wait is not None:
            response.headers.setdefault("retry-after", wait)


async def create(request: web.Request) -> web.StreamResponse:
    body, knobs, arrival = await _body(request), request.app[STATE].gate.knobs.anthropic, request[ARRIVAL]
    answer, prompt = answer_of(body, knobs)
    if arrival.caller is not None:
        request.app[STATE].prompt_cache.keep(
            prompt, project=arrival.caller.project, model=body["model"], until=clock.now() + knobs.cache_seconds
        )
    request.app[STATE].ledger.note_effect(request[CALL])
    request.app[STATE].billing.note(
        provider=NAME,
        model=body["model"],
        via="live",
        tokens=arrival.tokens or call_tokens(answer),
        digest=digest_of(prompt.text),
    )
    dice = request[FATE].dice
    omissions, is_overloaded = Omissions.draw(knobs, dice), dice.random() < knobs.stream_overloaded_rate
    message = message_of(answer, model=body["model"], tokens=None if omissions.usage else arrival.tokens)
    if not body.get("stream"):
        _settle(request)
        return web.json_response(message)
    response = await streams.send(
        request,
        stream.events(message, answer, omissions, chunks=knobs.stream_chunks, is_overloaded=is_overloaded),
        content_type="text/event-stream",
        pause_milliseconds=knobs.stream_chunk_milliseconds,
        headers=_headers(request),
    )
    _settle(request)
    return response


async def count(request: web.Request) -> web.Response:
    """Count tokens without charging any, by the same rule as a message."""
    answer, _ = answer_of({"max_tokens": 1, **await _body(request)}, request.app[STATE].gate.knobs.anthropic)
    return web.json_response({"input_tokens": answer.prompt_tokens})


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise anthropic_error(400, "The request body is not valid JSON.") from None
    return check(body)


def _settle(request: web.Request) -> None:
    arrival, book = request[ARRIVAL], request.app[STATE].gate.quotas
    if arrival.tokens is not None:
        quotas.settle(arrival.charges, arrival.tokens, book, at=request[FATE].charged_at)


def _headers(request: web.Request) -> dict[str, str]:
    state, arrival = request.app[STATE], request.get(ARRIVAL)
    found = {"request-id": f"req_{uuid4().hex[:24]}"}
    if arrival is None:
        return found
    return found | quotas.ratelimit_headers(arrival.charges, state.gate.quotas, state.gate.knobs.anthropic)
