"""The sandbox's web application: every provider behind the same gate and ledger."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from sandbox import control, plain
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.state import CALL, STATE, State

MAX_BODY_BYTES = 2_500_000
EFFECT_KEY_HEADER = "Idempotency-Key"

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_STATUS_WORDS = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app() -> web.Application:
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_as_json, _through_the_gate])
    app[STATE] = State()
    control.add_routes(app)
    plain.add_routes(app)
    return app


async def serve(port: int) -> None:
    """
    Serve on 127.0.0.1 until SIGTERM or SIGINT, having printed the address.

    Raises:
        OSError: The port is taken.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(make_app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        sys.stdout.write(f"sandbox listening on http://127.0.0.1:{runner.addresses[0][1]}\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await runner.cleanup()


@web.middleware
async def _as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response(_envelope(error.status, error.text or error.reason), status=error.status)


@web.middleware
async def _through_the_gate(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path.startswith("/_sandbox"):
        return await handler(request)
    state = request.app[STATE]
    call = state.ledger.open_call(
        provider=request.path.split("/", 2)[1],
        method=request.method,
        path=request.path,
        effect_key=request.headers.get(EFFECT_KEY_HEADER),
    )
    request[CALL] = call
    fate = state.gate.decide(is_write=request.method not in READ_METHODS, row=request.match_info.get("row"))
    call.accepted, call.cause = fate.accepted, fate.cause
    call.latency_ms = round(fate.latency_seconds * 1000, 3)
    if fate.breaks_connection:
        state.ledger.close_call(call, None)
        if request.transport:
            request.transport.abort()
        return web.Response(status=UNAVAILABLE)
    status = None
    try:
        response = await _carry_out(request, handler, fate, html_429=state.gate.knobs.html_429)
        status = response.status
    except web.HTTPException as error:
        status = error.status
        raise
    finally:
        state.ledger.close_call(call, status)
    return response


async def _carry_out(request: web.Request, handler: Handler, fate: Fate, *, html_429: bool) -> web.StreamResponse:
    if fate.latency_seconds:
        await asyncio.sleep(fate.latency_seconds)
    if fate.status is not None:
        return _refusal(fate, html_429=html_429)
    response = await handler(request)
    if fate.answers_503_after and response.status < HTTPStatus.BAD_REQUEST:
        return web.json_response(_envelope(UNAVAILABLE, "The service is unavailable."), status=UNAVAILABLE)
    return response


def _refusal(fate: Fate, *, html_429: bool) -> web.Response:
    status = fate.status or UNAVAILABLE
    headers = {"Retry-After": fate.retry_after} if fate.retry_after is not None else {}
    if status == TOO_MANY_REQUESTS and html_429:
        page = "<!DOCTYPE html><html><title>429</title><p>Too many requests, please slow down.</html>"
        return web.Response(status=status, text=page, content_type="text/html", headers=headers)
    message = f"Refused by the sandbox ({fate.cause})."
    return web.json_response(_envelope(status, message), status=status, headers=headers)


def _envelope(status: int, message: str) -> dict[str, object]:
    words = _STATUS_WORDS.get(status) or "UNKNOWN"
    return {"error": {"code": status, "message": message, "status": words}}
