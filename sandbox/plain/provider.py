"""A plain HTTP API: a sheet of rows, an echo, and any status on demand."""

import json

from aiohttp import web

from sandbox.envelopes import ApiError, envelope
from sandbox.gate import UNAVAILABLE, Fate
from sandbox.knobs.settings import Knobs
from sandbox.paging import integer, limit, refuse_unknown
from sandbox.plain.rows import SheetsFull
from sandbox.provider import Arrival
from sandbox.state import CALL, STATE

MAX_NAME_CHARACTERS = 200

_INSUFFICIENT_STORAGE = 507


READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Plain:
    """Answers every path that no other provider has; it has no callers and no quotas of its own."""

    name = "plain"

    def add_routes(self, app: web.Application) -> None:
        app.router.add_put("/plain/sheets/{sheet}/rows/{row}", write_row)
        app.router.add_get("/plain/sheets/{sheet}/rows/{row}", read_row)
        app.router.add_get("/plain/sheets/{sheet}/rows", list_rows)
        app.router.add_post("/plain/echo", echo)
        app.router.add_route("*", "/plain/status/{code}", answer_status)

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        await request.read()  # a call counts once all of it has arrived
        return Arrival(is_write=request.method not in READ_METHODS, row=request.match_info.get("row"))

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        return self.error(fate.status or UNAVAILABLE, f"Refused by the sandbox ({fate.cause}).")

    def error(self, status: int, message: str) -> ApiError:
        return ApiError(status, envelope(status, message))

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        response.headers.update(request.app[STATE].gate.rate_headers())


async def write_row(request: web.Request) -> web.Response:
    """Set a row to the JSON value in the body. Repeating it changes nothing."""
    sheet, row = _names(request)
    body = await request.read()
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text="The body must be JSON.") from None
    state = request.app[STATE]
    try:
        state.plain_sheets.write(sheet, row, body)
    except SheetsFull:
        message = "The sandbox is full; POST /_sandbox/reset empties it."
        return web.json_response(
            {"error": {"code": _INSUFFICIENT_STORAGE, "message": message}}, status=_INSUFFICIENT_STORAGE
        )
    state.ledger.note_effect(request[CALL], row=f"{sheet}/{row}")
    return web.json_response({"sheet": sheet, "row": row, "value": value})


async def read_row(request: web.Request) -> web.Response:
    sheet, row = _names(request)
    value = request.app[STATE].plain_sheets.read(sheet, row)
    if value is None:
        raise web.HTTPNotFound(text="Requested entity was not found.")
    return web.json_response({"sheet": sheet, "row": row, "value": json.loads(value)})


async def list_rows(request: web.Request) -> web.Response:
    """List rows in the order of their first write; `after` is how many to skip."""
    refuse_unknown(request, ("after", "limit"))
    after, count = integer(request, "after", default=0), limit(request)
    rows = request.app[STATE].plain_sheets.rows(request.match_info["sheet"])
    page = [{"row": row, "value": json.loads(value)} for row, value in rows[after : after + count]]
    more = after + count < len(rows)
    return web.json_response({"rows": page, "total": len(rows), "next_after": after + count if more else None})


async def echo(request: web.Request) -> web.Response:
    """Return the body as it came. Each call counts as one effect: this API is not idempotent."""
    body = await request.read()
    request.app[STATE].ledger.note_effect(request[CALL])
    return web.Response(body=body, headers={"Content-Type": request.content_type})


async def answer_status(request: web.Request) -> web.Response:
    text = request.match_info["code"]
    if not (text.isascii() and text.isdigit() and 200 <= int(text[:4]) <= 599):  # noqa: PLR2004
        raise web.HTTPBadRequest(text="The status must be a number from 200 to 599.")
    status = int(text)
    if status in {204, 205, 304}:
        return web.Response(status=status)
    return web.json_response({"status": status}, status=status)


def _names(request: web.Request) -> tuple[str, str]:
    sheet, row = request.match_info["sheet"], request.match_info["row"]
    if max(len(sheet), len(row)) > MAX_NAME_CHARACTERS:
        raise web.HTTPBadRequest(text=f"Names have at most {MAX_NAME_CHARACTERS} characters.")
    return sheet, row
