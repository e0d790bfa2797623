"""The sandbox's web application: every provider behind the same gate and ledger."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from sandbox import clock, control
from sandbox.anthropic.provider import Anthropic
from sandbox.batches import control as batch_control
from sandbox.envelopes import AnswerLost, ApiError, CallerLeft
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.gemini.provider import Gemini
from sandbox.google_sheets.provider import GoogleSheets
from sandbox.openai.provider import OpenAi
from sandbox.plain.provider import Plain
from sandbox.provider import Provider, key_of
from sandbox.state import ARRIVAL, CALL, FATE, STATE, State

MAX_BODY_BYTES = 2_500_000
EFFECT_KEY_HEADER = "Idempotency-Key"

_PLAIN = Plain()
_GEMINI = Gemini()
_PROVIDERS: dict[str, Provider] = {
    "plain": _PLAIN,
    "v4": GoogleSheets(),
    "v1beta": _GEMINI,
    "upload": _GEMINI,
    "download": _GEMINI,
    "v1": OpenAi(),
    "v1/messages": Anthropic(),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app() -> web.Application:
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_as_json, _through_the_gate])
    app[STATE] = State()
    control.add_routes(app)
    batch_control.add_routes(app)
    for provider in dict.fromkeys(_PROVIDERS.values()):
        provider.add_routes(app)
    return app


@asynccontextmanager
async def serving(port: int) -> AsyncIterator[str]:
    """
    Serve on 127.0.0.1 as long as the block lasts; yield the address.

    Raises:
        OSError: The port is taken.
    """
    runner = web.AppRunner(make_app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def serve(port: int) -> None:
    """
    Serve until SIGTERM or SIGINT, having printed the address.

    Raises:
        OSError: The port is taken.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(port) as address:
        sys.stdout.write(f"sandbox listening on {address}\n")
        sys.stdout.flush()
        await stop.wait()


@web.middleware
async def _as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        refusal = _provider_of(request).error(error.status, error.text or error.reason)
        return refusal.response()


@web.middleware
async def _through_the_gate(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path.startswith("/_sandbox"):
        return await handler(request)
    state, provider = request.app[STATE], _provider_of(request)
    call = state.ledger.open_call(
        provider=provider.name,
        method=request.method,
        path=request.path,
        effect_key=request.headers.get(EFFECT_KEY_HEADER),
    )
    request[CALL] = call
    fate = state.gate.outage(provider.name)
    if fate is not None and fate.breaks_connection:
        call.accepted, call.cause = False, fate.cause
        state.ledger.close_call(call, None)
        if request.transport:
            request.transport.abort()
        return web.Response(status=UNAVAILABLE)
    status = None
    try:
        response = await _answer(request, handler, provider, fate)
        status = response.status
    except AnswerLost:
        call.cause = "answer_lost"
        if request.transport:
            request.transport.abort()
        return web.Response(status=UNAVAILABLE)
    except CallerLeft:
        call.accepted, call.cause = False, "caller_left"
        return web.Response(status=UNAVAILABLE)
    except web.HTTPException as error:
        status = error.status
        raise
    finally:
        state.ledger.close_call(call, status)
    return response


async def _answer(
    request: web.Request, handler: Handler, provider: Provider, outage: Fate | None
) -> web.StreamResponse:
    knobs = request.app[STATE].gate.knobs
    response: web.StreamResponse
    try:
        fate = outage or await _decide(request, provider)
        request[FATE] = fate
        call = request[CALL]
        call.accepted, call.cause = fate.accepted, fate.cause
        call.latency_ms = round(fate.latency_seconds * 1000, 3)
        call.violated = [violation.charge.quota.name for violation in fate.violations]
        if fate.latency_seconds:
            await clock.sleep(fate.latency_seconds)
        if fate.status is not None:
            response = _refuse(request, provider, fate)
        else:
            response = await handler(request)
            if fate.answers_503_after and response.status < HTTPStatus.BAD_REQUEST:
                raise provider.error(UNAVAILABLE, "The service is currently unavailable.")
    except ApiError as error:
        response = error.response()
    if not response.prepared:
        provider.finish(request, response, knobs)
    return response


async def _decide(request: web.Request, provider: Provider) -> Fate:
    """Charge the call at the moment when all of it has arrived; the ledger notes the same moment."""
    state, call = request.app[STATE], request[CALL]
    if key_of(request) in state.revoked_keys:
        call.accepted, call.cause = False, "revoked_key"
        raise provider.error(HTTPStatus.UNAUTHORIZED, "This API key was revoked.")
    try:
        arrival = await provider.arrive(request, state.gate.knobs)
    except ApiError:
        call.accepted, call.cause = False, "caller"
        raise
    except ConnectionError as error:
        raise CallerLeft from error
    request[ARRIVAL] = arrival
    call.at = clock.now()
    if arrival.caller is not None:
        call.project, call.user = arrival.caller.project, arrival.caller.user
    call.model, call.quota_kind, call.cost_tokens = arrival.model, arrival.quota_kind, arrival.cost_tokens
    if arrival.tokens is not None:
        call.prompt_tokens, call.output_tokens = arrival.tokens.prompt, arrival.tokens.output
        call.cached_tokens = arrival.tokens.cached
    return state.gate.decide(
        provider.name,
        is_write=arrival.is_write,
        row=arrival.row,
        charges=arrival.charges,
        rejected_calls_count=arrival.rejected_calls_count,
    )


def _refuse(request: web.Request, provider: Provider, fate: Fate) -> web.Response:
    knobs = request.app[STATE].gate.knobs
    if fate.status == TOO_MANY_REQUESTS and knobs.html_429:
        page = "<!DOCTYPE html><html><title>429</title><p>Too many requests, please slow down.</html>"
        response = web.Response(status=fate.status, text=page, content_type="text/html")
    else:
        response = provider.refusal(request, fate, knobs).response()
    if fate.retry_after is not None:
        response.headers["Retry-After"] = fate.retry_after
    return response


def _provider_of(request: web.Request) -> Provider:
    parts = request.path.split("/", 3)[1:]
    return _PROVIDERS.get("/".join(parts[:2])) or _PROVIDERS.get(parts[0], _PLAIN)
