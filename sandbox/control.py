"""The sandbox's own controls under /_sandbox; no knob touches them."""

import json
import os
import time
from itertools import islice
from typing import Any

from aiohttp import web

from sandbox import clock
from sandbox.knobs.settings import InvalidKnobs
from sandbox.ledger import ReceivedCall
from sandbox.paging import boolean, integer, limit, refuse_unknown
from sandbox.state import STATE, State

_started = time.monotonic()

MAX_REVOKED_KEYS = 1_000
MAX_MOVED_SECONDS = 31 * 86_400  # in one request

_EXACT = ("provider", "project", "user", "model", "quota_kind", "cause")


def add_routes(app: web.Application) -> None:
    app.router.add_get("/_sandbox/health", health)
    app.router.add_get("/_sandbox/knobs", read_knobs)
    app.router.add_patch("/_sandbox/knobs", turn_knobs)
    app.router.add_patch("/_sandbox/clock", move_clock)
    app.router.add_get("/_sandbox/ledger", read_ledger)
    app.router.add_delete("/_sandbox/ledger", clear_ledger)
    app.router.add_get("/_sandbox/effects", read_effects)
    app.router.add_get("/_sandbox/usage", read_usage)
    app.router.add_get("/_sandbox/revoked_keys", read_revoked_keys)
    app.router.add_post("/_sandbox/revoked_keys", revoke_key)
    app.router.add_delete("/_sandbox/revoked_keys", restore_keys)
    app.router.add_post("/_sandbox/reset", reset)


async def health(request: web.Request) -> web.Response:
    uptime = round(time.monotonic() - _started, 3)
    return web.json_response({"status": "ok", "pid": os.getpid(), "uptime_seconds": uptime})


async def read_knobs(request: web.Request) -> web.Response:
    return web.json_response(_knobs(request.app[STATE]))


async def turn_knobs(request: web.Request) -> web.Response:
    """Replace the knobs named in the body, all or none."""
    try:
        request.app[STATE].gate.turn(json.loads(await request.read()))
    except InvalidKnobs as error:
        body = {"error": {"code": 400, "message": "No knob was changed.", "mistakes": error.mistakes}}
        return web.json_response(body, status=400)
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text="The body must be a JSON object of knobs.") from None
    return web.json_response(_knobs(request.app[STATE]))


async def move_clock(request: web.Request) -> web.Response:
    """Move the clock of windows, delays, outages and batches on by so many seconds."""
    try:
        seconds = json.loads(await request.read())["seconds"]
    except (ValueError, RecursionError, TypeError, KeyError):
        seconds = None
    if type(seconds) not in {int, float} or not 0 <= seconds <= MAX_MOVED_SECONDS:
        raise web.HTTPBadRequest(text=f'Send how far: {{"seconds": 60}}, at most {MAX_MOVED_SECONDS}.')
    clock.move(seconds)
    return web.json_response({"now": clock.now()})


async def read_ledger(request: web.Request) -> web.Response:
    """Return calls in order of arrival, filtered, and the counters of all calls."""
    names = ("method", "path", "status", "effect_key", *_EXACT)
    refuse_unknown(request, ("after", "limit", "accepted", *names))
    accepted = boolean(request, "accepted")
    query = request.query

    def matches(call: ReceivedCall) -> bool:
        return (
            (accepted is None or call.accepted == accepted)
            and ("method" not in query or call.method == query["method"].upper())
            and ("path" not in query or call.path.startswith(query["path"]))
            and ("status" not in query or str(call.status).lower() == query["status"].lower())
            and ("effect_key" not in query or call.effect_key == query["effect_key"])
            and all(name not in query or getattr(call, name) == query[name] for name in _EXACT)
        )

    ledger = request.app[STATE].ledger
    calls, following = ledger.page(after=integer(request, "after", default=0), limit=limit(request), matches=matches)
    return web.json_response({"calls": calls, "next_after": following, "counters": ledger.counters()})


async def clear_ledger(request: web.Request) -> web.Response:
    """Delete calls, counters, effects and usage; rows, knobs and the used part of quotas stay."""
    request.app[STATE].ledger.clear()
    request.app[STATE].gate.quotas.clear_figures()
    request.app[STATE].billing.clear()
    return web.Response(status=204)


async def read_usage(request: web.Request) -> web.Response:
    """Report a service's quotas, per key and window: limit, used, calls rejected."""
    refuse_unknown(request, ("service",))
    if "service" not in request.query:
        raise web.HTTPBadRequest(text="Name a service, such as service=google_sheets.")
    return web.json_response(request.app[STATE].gate.quotas.report(request.query["service"], clock.now()))


async def read_effects(request: web.Request) -> web.Response:
    """List how often each row was written, or each effect key applied."""
    refuse_unknown(request, ("by", "min_count", "after", "limit"))
    by = request.query.get("by", "row")
    if by not in {"row", "effect_key"}:
        raise web.HTTPBadRequest(text="by must be row or effect_key.")
    ledger = request.app[STATE].ledger
    counts = (ledger.rows if by == "row" else ledger.effect_keys).counts
    low = integer(request, "min_count", default=1)
    after, count = integer(request, "after", default=0), limit(request)
    found = [{"name": name, "count": times} for name, times in counts.items() if times >= low]
    more = after + count < len(found)
    page = list(islice(found, after, after + count))
    return web.json_response({"effects": page, "total": len(found), "next_after": after + count if more else None})


async def read_revoked_keys(request: web.Request) -> web.Response:
    return web.json_response({"revoked_keys": sorted(request.app[STATE].revoked_keys)})


async def revoke_key(request: web.Request) -> web.Response:
    """Answer 401 to every call with this key from now on, whichever provider it asks."""
    try:
        key = json.loads(await request.read())["key"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise web.HTTPBadRequest(text='Send the key to revoke: {"key": "..."}.') from None
    revoked = request.app[STATE].revoked_keys
    if not isinstance(key, str) or not key or len(revoked) >= MAX_REVOKED_KEYS:
        raise web.HTTPBadRequest(text=f"A key is a text, and at most {MAX_REVOKED_KEYS} are revoked.")
    revoked.add(key)
    return await read_revoked_keys(request)


async def restore_keys(request: web.Request) -> web.Response:
    """Let revoked keys work again: the key in `key=`, or all."""
    refuse_unknown(request, ("key",))
    revoked = request.app[STATE].revoked_keys
    if "key" in request.query:
        revoked.discard(request.query["key"])
    else:
        revoked.clear()
    return await read_revoked_keys(request)


async def reset(request: web.Request) -> web.Response:
    """Return to the state after the start: default knobs, real time, no rows, an empty ledger."""
    state = request.app[STATE]
    state.gate.reset()
    state.ledger.clear()
    state.plain_sheets.clear()
    state.workbook.clear()
    state.prompt_cache.clear()
    state.batches.clear()
    state.billing.clear()
    state.revoked_keys.clear()
    clock.restore()
    return web.Response(status=204)


def _knobs(state: State) -> dict[str, Any]:
    knobs = state.gate.knobs.model_dump(mode="json")
    return {**knobs, "outage_seconds_left": round(state.gate.outage_seconds_left(), 3)}
