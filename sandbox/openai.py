"""An OpenAI-compatible server: chat completions, with quotas per project and model."""

import json
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox import clock, streams
from sandbox.envelopes import ApiError
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.knobs.providers import OpenAiKnobs
from sandbox.knobs.settings import Knobs
from sandbox.llm import CannedAnswer, Omissions, is_bad_key, texts
from sandbox.provider import Arrival, CallIdentity, bearer_token, caller_of
from sandbox.quotas.book import ExhaustedQuota, Quota, QuotaCost
from sandbox.state import ARRIVAL, CALL, FATE, STATE

NAME = "openai"

_TYPES = {401: "invalid_request_error", 403: "invalid_request_error", 404: "invalid_request_error"}


class OpenAi:
    name = NAME

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/chat/completions", complete)

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        token = bearer_token(request)
        if token is None:
            raise _error(401, "You didn't provide an API key.")
        if is_bad_key(token, knobs.openai):
            raise _error(401, "Incorrect API key provided.", code="invalid_api_key")
        if knobs.openai.credit_gone:
            message = "You exceeded your current quota, please check your plan and billing details."
            raise _error(429, message, kind="insufficient_quota", code="insufficient_quota")
        if request.match_info.http_exception is not None:
            return Arrival(is_write=False)
        body = await _body(request)
        model = body["model"]
        if knobs.openai.models is not None and model not in knobs.openai.models:
            message = f"The model `{model}` does not exist or you do not have access to it."
            raise _error(404, message, code="model_not_found")
        caller, generation = caller_of(token), _generation(body, knobs.openai)
        tokens = generation.prompt_tokens + generation.output_tokens
        return Arrival(
            is_write=True,
            caller=caller,
            quota_kind="generate",
            model=model,
            cost_tokens=tokens,
            charges=_charges(caller, model, tokens, knobs.openai),
            rejected_calls_count=knobs.openai.rejected_calls_count,
        )

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        status = fate.status or UNAVAILABLE
        if status != TOO_MANY_REQUESTS:
            return self.error(status, f"The server had an error while processing your request ({fate.cause}).")
        if not fate.violations:
            return _error(status, "Rate limit reached. Please slow down.", kind="requests", code="rate_limit_exceeded")
        violation = fate.violations[-1]
        unit = violation.charge.quota.unit
        return _error(status, _limit_reached(violation), kind=unit, code="rate_limit_exceeded")

    def error(self, status: int, message: str) -> ApiError:
        return _error(status, message)

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        response.headers.update(_ratelimit_headers(request))


async def complete(request: web.Request) -> web.StreamResponse:
    body, knobs = await _body(request), request.app[STATE].gate.knobs.openai
    generation = _generation(body, knobs)
    request.app[STATE].ledger.note_effect(request[CALL])
    omissions = Omissions.draw(knobs, request[FATE].dice)
    usage = {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.output_tokens,
        "total_tokens": generation.prompt_tokens + generation.output_tokens,
    }
    head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(clock.now()), "model": body["model"]}
    reason = "length" if generation.is_cut else "stop"
    if not body.get("stream"):
        message = {"role": "assistant", "content": generation.text}
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        answer: dict[str, Any] = {**head, "object": "chat.completion", "choices": choices}
        return web.json_response(answer if omissions.usage else {**answer, "usage": usage})
    head["object"] = "chat.completion.chunk"
    chunks = [
        {**head, "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}
        for part in generation.chunks(knobs.stream_chunks)
    ]
    pieces = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    if not omissions.end_of_stream:
        last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        pieces.append(f"data: {json.dumps(last)}\n\n")
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") and not omissions.usage:
            pieces.append(f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\n")
        pieces.append("data: [DONE]\n\n")
    return await streams.send(
        request,
        pieces,
        content_type="text/event-stream",
        pause_milliseconds=knobs.stream_chunk_milliseconds,
        headers=_ratelimit_headers(request),
    )


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
    short = "tokens per min (TPM)" if quota.unit == "tokens" else "requests per min (RPM)"
    figures = f"Limit {quota.capacity}, Used {violation.used}, Requested {charge.cost}."
    if violation.wait_seconds > quota.rule.seconds:
        return f"Request too large for {charge.key[1][1]} on {short}: {figures}"
    wait = duration(violation.wait_seconds)
    return f"Rate limit reached for {charge.key[1][1]} on {short}: {figures} Please try again in {wait}."


def _ratelimit_headers(request: web.Request) -> dict[str, str]:
    """Describe the quotas as they are after this call; a reset is when all of a quota is back."""
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


def _error(status: int, message: str, *, kind: str | None = None, code: str | None = None) -> ApiError:
    kind = kind or _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
    return ApiError(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise _error(400, "We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise _error(400, "you must provide a model parameter")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise _error(400, "Missing required parameter: 'messages'.", code="missing_required_parameter")
    return body


def _generation(body: dict[str, Any], knobs: OpenAiKnobs) -> CannedAnswer:
    max_tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        raise _error(400, "Invalid 'max_tokens': integer below minimum value.", code="integer_below_min_value")
    return CannedAnswer.of("".join(texts(body["messages"])), knobs, max_tokens=max_tokens)


def _charges(caller: CallIdentity, model: str, tokens: int, knobs: OpenAiKnobs) -> list[QuotaCost]:
    """Count what is asked and what will be answered, as the service's tokens per minute do."""
    rule, key = knobs.rule(), (("project", caller.project), ("model", model))
    charges = []
    if knobs.requests_per_minute is not None:
        charges.append(QuotaCost(Quota(NAME, "RequestsPerMinute", "requests", knobs.requests_per_minute, rule), key))
    if knobs.tokens_per_minute is not None:
        quota = Quota(NAME, "TokensPerMinute", "tokens", knobs.tokens_per_minute, rule)
        charges.append(QuotaCost(quota, key, tokens))
    return charges
