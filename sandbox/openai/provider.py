"""An OpenAI-compatible server, with quotas per project and model."""

import json
from typing import Any

from aiohttp import web

from sandbox import clock, streams
from sandbox.batches import openai as batches
from sandbox.billing import digest_of
from sandbox.envelopes import ApiError
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.knobs.providers import OpenAiKnobs
from sandbox.knobs.settings import Knobs
from sandbox.llm import Omissions, call_tokens, is_bad_key, quota_key
from sandbox.openai.endpoints import ENDPOINTS
from sandbox.openai.errors import openai_error
from sandbox.provider import Arrival, CallIdentity, bearer_token, caller_of
from sandbox.quotas.book import ExhaustedQuota, Quota, QuotaCost
from sandbox.state import ARRIVAL, CALL, FATE, STATE

NAME = "openai"
CHAT = "/v1/chat/completions"


class OpenAi:
    name = NAME

    def add_routes(self, app: web.Application) -> None:
        for path in ENDPOINTS:
            app.router.add_post(path, complete)
        batches.add_routes(app)

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        token = bearer_token(request)
        if token is None:
            raise openai_error(401, "You didn't provide an API key.")
        if is_bad_key(token, knobs.openai):
            raise openai_error(401, "Incorrect API key provided.")
        if knobs.openai.credit_gone:
            message = "You exceeded your current quota, please check your plan and billing details."
            raise openai_error(429, message, kind="insufficient_quota", code="insufficient_quota")
        if request.match_info.http_exception is not None:
            return Arrival(is_write=False)
        if batches.serves(request):
            return await batches.arrive(request, caller_of(token), knobs)
        body = await _body(request)
        model = body["model"]
        if knobs.openai.models is not None and model not in knobs.openai.models:
            message = f"The model `{model}` does not exist or you do not have access to it."
            raise openai_error(404, message, code="model_not_found")
        caller, generation = caller_of(token), ENDPOINTS[request.path].generation_of(body, knobs.openai)
        tokens = generation.prompt_tokens + generation.output_tokens
        if (room := knobs.openai.context_tokens.get(model)) is not None and tokens > room:
            message = f"This model's maximum context length is {room} tokens. However, you requested {tokens} tokens."
            raise openai_error(400, message, code="context_length_exceeded")
        return Arrival(
            is_write=True,
            caller=caller,
            quota_kind="generate",
            model=model,
            cost_tokens=tokens,
            tokens=call_tokens(generation, cached_share=knobs.openai.cached_share),
            charges=_charges(caller, model, tokens, knobs.openai),
            rejected_calls_count=knobs.openai.rejected_calls_count,
        )

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        status = fate.status or UNAVAILABLE
        if status != TOO_MANY_REQUESTS:
            return self.error(status, f"The server had an error while processing your request ({fate.cause}).")
        if not fate.violations:
            return openai_error(
                status, "Rate limit reached. Please slow down.", kind="requests", code="rate_limit_exceeded"
            )
        violation = fate.violations[-1]
        unit = violation.charge.quota.unit
        return openai_error(status, _limit_reached(violation), kind=unit, code="rate_limit_exceeded")

    def error(self, status: int, message: str) -> ApiError:
        return openai_error(status, message)

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        response.headers.update(_ratelimit_headers(request))


async def complete(request: web.Request) -> web.StreamResponse:
    endpoint = ENDPOINTS[request.path]
    body, knobs = await _body(request), request.app[STATE].gate.knobs.openai
    generation = endpoint.generation_of(body, knobs)
    request.app[STATE].ledger.note_effect(request[CALL])
    request.app[STATE].billing.note(
        provider=NAME,
        model=body["model"],
        via="live",
        tokens=call_tokens(generation, cached_share=knobs.cached_share),
        digest=digest_of(endpoint.prompt_of(body)),
    )
    omissions = Omissions.draw(knobs, request[FATE].dice)
    usage = None if omissions.usage else endpoint.usage_of(generation, knobs)
    if not body.get("stream") or endpoint.events is None:
        return web.json_response(endpoint.answer(body, generation, usage))
    parts = generation.chunks(knobs.stream_chunks)
    pieces = [_sent(event) for event in endpoint.events(body, generation, usage, parts)]
    if omissions.end_of_stream:
        pieces = pieces[: len(parts)]
    elif request.path == CHAT:
        pieces.append("data: [DONE]\n\n")
    return await streams.send(
        request,
        pieces,
        content_type="text/event-stream",
        pause_milliseconds=knobs.stream_chunk_milliseconds,
        headers=_ratelimit_headers(request),
    )


def _sent(event: dict[str, Any]) -> str:
    """Return an event in the form in which it is sent; events of chat completions have no names."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"


def duration(seconds: float) -> str:
    """Return a time as `12ms`, `1s`, `1.5s`, `6m0s` or `1h0m0s`."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:  # noqa: PLR2004
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds / 1000, 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _limit_reached(violation: ExhaustedQuota) -> str:
    quota, charge = violation.charge.quota, violation.charge
    model = dict(charge.key)["model"]
    short = "tokens per min (TPM)" if quota.unit == "tokens" else "requests per min (RPM)"
    figures = f"Limit {quota.capacity}, Used {violation.used}, Requested {charge.cost}."
    if violation.wait_seconds > quota.rule.seconds:
        return f"Request too large for {model} on {short}: {figures}"
    wait = duration(violation.wait_seconds)
    return f"Rate limit reached for {model} on {short}: {figures} Please try again in {wait}."


def _ratelimit_headers(request: web.Request) -> dict[str, str]:
    """Describe the quotas as they are after this call; a reset is when all of a quota is free."""
    style, arrival = request.app[STATE].gate.knobs.openai.ratelimit_headers, request.get(ARRIVAL)
    if style == "none" or arrival is None:
        return {}
    headers = {}
    for charge in arrival.charges:
        left, seconds = request.app[STATE].gate.quotas.room(charge, clock.now())
        lie = {"minus_one": "-1", "zero": "0"}.get(style)
        unit = charge.quota.unit
        headers[f"x-ratelimit-limit-{unit}"] = lie or str(charge.quota.capacity)
        headers[f"x-ratelimit-remaining-{unit}"] = lie or str(left)
        headers[f"x-ratelimit-reset-{unit}"] = lie or duration(seconds)
    return headers


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise openai_error(400, "We could not parse the JSON body of your request.") from None
    return ENDPOINTS[request.path].check(body)


def _charges(caller: CallIdentity, model: str, tokens: int, knobs: OpenAiKnobs) -> list[QuotaCost]:
    """Return the cost of a call: its input and its coming output, as the service's tokens per minute count them."""
    rule, key, hidden = knobs.rule(), quota_key(caller, model, knobs), knobs.hidden_share
    charges = []
    if knobs.requests_per_minute is not None:
        quota = Quota(NAME, "RequestsPerMinute", "requests", knobs.requests_per_minute, rule, hidden)
        charges.append(QuotaCost(quota, key))
    if knobs.tokens_per_minute is not None:
        quota = Quota(NAME, "TokensPerMinute", "tokens", knobs.tokens_per_minute, rule, hidden)
        charges.append(QuotaCost(quota, key, tokens))
    return charges
