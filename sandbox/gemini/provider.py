"""Gemini: generateContent and streamGenerateContent, with quotas per project and model."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox import streams
from sandbox.batches import gemini as batches
from sandbox.billing import digest_of
from sandbox.envelopes import ApiError, compress, google_error
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.gemini import errors
from sandbox.gemini.answers import answer, embeddings_of, generation_of, prompt_of
from sandbox.knobs.providers import GeminiKnobs
from sandbox.knobs.settings import Knobs
from sandbox.llm import CannedAnswer, Omissions, call_tokens, count_tokens, is_bad_key, quota_key
from sandbox.provider import Arrival, CallIdentity, CallTokens, bearer_token, caller_of
from sandbox.quotas.book import Quota, QuotaCost
from sandbox.quotas.windows import WindowRule
from sandbox.state import ARRIVAL, CALL, FATE, STATE

NAME = "gemini"

_DAY_SECONDS = 86_400
_GENERATE = "/v1beta/models/{model:[^/:]+}:generateContent"
_STREAM = "/v1beta/models/{model:[^/:]+}:streamGenerateContent"
_EMBED = "/v1beta/models/{model:[^/:]+}:batchEmbedContents"
_COUNT = "/v1beta/models/{model:[^/:]+}:countTokens"


class Gemini:
    name = NAME

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post(_GENERATE, generate)
        app.router.add_post(_STREAM, stream)
        app.router.add_post(_EMBED, embed)
        app.router.add_post(_COUNT, count)
        batches.add_routes(app)

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        key = request.headers.get("x-goog-api-key") or request.query.get("key") or bearer_token(request)
        if not key:
            raise google_error(403, errors.NO_KEY)
        if is_bad_key(key, knobs.gemini):
            raise errors.bad_key()
        if knobs.gemini.credit_gone:
            raise google_error(402, errors.MESSAGES[402])
        model = request.match_info.get("model")
        if model is not None and knobs.gemini.models is not None and model not in knobs.gemini.models:
            raise errors.no_such_model(model)
        if batches.serves(request):
            return await batches.arrive(request, caller_of(key), knobs)
        if model is None:
            return Arrival(is_write=False)
        caller, body = caller_of(key), await _body(request)
        if request.path.endswith(":countTokens"):
            return Arrival(is_write=False, caller=caller, model=model)
        most = 0 if request.path.endswith(":batchEmbedContents") else _allowed_tokens(body)
        estimate = CannedAnswer.of(prompt_of(body), knobs.gemini, max_tokens=most)
        tokens = estimate.prompt_tokens
        if (room := knobs.gemini.context_tokens.get(model)) is not None and tokens > room:
            raise google_error(
                400, f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({room})."
            )
        return Arrival(
            is_write=True,
            caller=caller,
            quota_kind="generate",
            model=model,
            cost_tokens=tokens,
            tokens=call_tokens(estimate),
            charges=_charges(caller, model, tokens, knobs.gemini),
            rejected_calls_count=knobs.gemini.rejected_calls_count,
        )

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        status, arrival = fate.status or UNAVAILABLE, request.get(ARRIVAL)
        if status == TOO_MANY_REQUESTS and arrival is not None:
            error = errors.too_many_requests(fate.violations, arrival.model or "", knobs.gemini, fate.dice)
        else:
            error = self.error(status, errors.MESSAGES.get(status, f"Refused by the sandbox ({fate.cause})."))
        is_stream = request.path.endswith(":streamGenerateContent")
        return ApiError(error.status, [error.body]) if is_stream and knobs.gemini.error_array else error

    def error(self, status: int, message: str) -> ApiError:
        return google_error(status, message)

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        compress(request, response)


async def generate(request: web.Request) -> web.Response:
    generation, omissions = await _generation(request)
    model = request.match_info["model"]
    return web.json_response(
        answer(model, generation, generation.text, answer_id=uuid4().hex, usage=not omissions.usage)
    )


async def stream(request: web.Request) -> web.StreamResponse:
    """Send the answer in `stream_chunks` pieces, the last with the usage; a cut stream ends before the last piece."""
    generation, omissions = await _generation(request)
    knobs, answer_id, model = request.app[STATE].gate.knobs.gemini, uuid4().hex, request.match_info["model"]
    parts = generation.chunks(knobs.stream_chunks)
    answers = [answer(model, generation, part, answer_id=answer_id, ended=False) for part in parts[:-1]]
    if not omissions.end_of_stream:
        answers.append(answer(model, generation, parts[-1], answer_id=answer_id, usage=not omissions.usage))
    if request.query.get("alt") == "sse":
        pieces, content_type = [f"data: {json.dumps(found)}\r\n\r\n" for found in answers], "text/event-stream"
    else:
        starts = ["[", *[",\r\n"] * (len(answers) - 1)]
        pieces = [start + json.dumps(found) for start, found in zip(starts, answers, strict=False)]
        pieces, content_type = [*pieces, "]" if answers else "[]"], "application/json"
    return await streams.send(
        request, pieces, content_type=content_type, pause_milliseconds=knobs.stream_chunk_milliseconds
    )


async def embed(request: web.Request) -> web.Response:
    body, knobs, state = await _body(request), request.app[STATE].gate.knobs.gemini, request.app[STATE]
    vectors = embeddings_of(body)
    tokens = count_tokens(prompt_of(body), factor=knobs.token_factor)
    state.ledger.note_effect(request[CALL])
    state.billing.note(
        provider=NAME,
        model=request.match_info["model"],
        via="live",
        tokens=CallTokens(tokens, 0),
        digest=digest_of(prompt_of(body)),
    )
    return web.json_response({"embeddings": vectors})


async def count(request: web.Request) -> web.Response:
    """Count tokens without charging any, by the same rule as generateContent."""
    factor = request.app[STATE].gate.knobs.gemini.token_factor
    return web.json_response({"totalTokens": count_tokens(prompt_of(await _body(request)), factor=factor)})


async def _generation(request: web.Request) -> tuple[CannedAnswer, Omissions]:
    knobs, body = request.app[STATE].gate.knobs.gemini, await _body(request)
    generation = generation_of(body, knobs)
    request.app[STATE].ledger.note_effect(request[CALL])
    request.app[STATE].billing.note(
        provider=NAME,
        model=request.match_info["model"],
        via="live",
        tokens=call_tokens(generation),
        digest=digest_of(prompt_of(body)),
    )
    return generation, Omissions.draw(knobs, request[FATE].dice)


def _allowed_tokens(body: dict[str, Any]) -> int | None:
    """Return how long an answer may be; None: no limit, or a wrong value, which is refused after the quotas."""
    config = body.get("generationConfig")
    tokens = config.get("maxOutputTokens") if isinstance(config, Mapping) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise google_error(400, "Invalid JSON payload received. Unexpected token.") from None
    if not isinstance(body, dict):
        raise google_error(400, 'Invalid JSON payload received. Unknown name "": Root element must be a message.')
    return body


def _charges(caller: CallIdentity, model: str, tokens: int, knobs: GeminiKnobs) -> list[QuotaCost]:
    key = quota_key(caller, model, knobs)
    suffix = "-FreeTier" if knobs.tier == "free" else ""
    tokens_name = (
        "GenerateContentInputTokensPerModelPerMinute-FreeTier"
        if knobs.tier == "free"
        else "GenerateContentPaidTierInputTokensPerModelPerMinute"
    )
    minute = knobs.rule()
    day = WindowRule("aligned", knobs.day_seconds or _DAY_SECONDS, None if knobs.day_seconds else knobs.reset_zone)
    charges: list[QuotaCost] = []
    if knobs.requests_per_minute is not None:
        name = f"GenerateRequestsPerMinutePerProjectPerModel{suffix}"
        charges.append(QuotaCost(Quota(NAME, name, "requests", knobs.requests_per_minute, minute), key))
    if knobs.tokens_per_minute is not None:
        charges.append(QuotaCost(Quota(NAME, tokens_name, "tokens", knobs.tokens_per_minute, minute), key, tokens))
    if knobs.requests_per_day is not None:
        name = f"GenerateRequestsPerDayPerProjectPerModel{suffix}"
        charges.append(QuotaCost(Quota(NAME, name, "requests", knobs.requests_per_day, day), key))
    return charges
