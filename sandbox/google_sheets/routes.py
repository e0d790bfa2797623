"""The requests of Google Sheets v4."""

import json
from collections.abc import Collection
from typing import Any

from aiohttp import web

from sandbox.envelopes import google_error
from sandbox.google_sheets import documents, masks, values
from sandbox.google_sheets.access import check_access
from sandbox.google_sheets.subrequests import SpreadsheetDraft
from sandbox.google_sheets.values import Reader, Write, Writer
from sandbox.google_sheets.workbook import BadRequest, Spreadsheet
from sandbox.state import ARRIVAL, CALL, STATE

_ID = "/v4/spreadsheets/{spreadsheet_id:[^/:]+}"
_RANGE = _ID + "/values/{range:[^/]+}"

_REPLY_FIELDS = ("spreadsheetId", "updatedRange", "updatedRows", "updatedColumns", "updatedCells", "updatedData")
_TOTAL_FIELDS = ("totalUpdatedRows", "totalUpdatedColumns", "totalUpdatedCells", "totalUpdatedSheets")
_NO_REQUESTS = "Must specify at least one request."


def add_routes(app: web.Application) -> None:
    app.router.add_get(_ID, get_spreadsheet)
    app.router.add_post(_ID + ":batchUpdate", batch_update)
    app.router.add_get(_ID + "/values:batchGet", values_batch_get)
    app.router.add_post(_ID + "/values:batchUpdate", values_batch_update)
    app.router.add_post(_RANGE + ":append", values_append)
    app.router.add_post(_RANGE + ":clear", values_clear)
    app.router.add_get(_RANGE, values_get)
    app.router.add_put(_RANGE, values_update)


class _Exchange:
    """One request with its spreadsheet, mask and body; a refusal becomes 400 before anything is written."""

    def __init__(self, request: web.Request, *, fields: Collection[str]) -> None:
        self.request = request
        self.knobs = request.app[STATE].gate.knobs.google_sheets
        self._mask = self._read_mask(fields)
        self.spreadsheet = self._open()
        self.query = dict(request.query)

    async def body(self, *known: str) -> dict[str, Any]:
        try:
            body = json.loads(await self.request.read() or b"{}")
        except (ValueError, RecursionError):
            raise BadRequest("Invalid JSON payload received. Unexpected token.") from None
        if not isinstance(body, dict):
            raise BadRequest('Invalid JSON payload received. Unknown name "": Root element must be a message.')
        for name in body:
            if name not in known:
                raise BadRequest(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
        return body

    def writer(self, option: Any) -> Writer:
        return Writer.of(option, self.knobs.protected_ranges)

    def echo(self, options: dict[str, Any]) -> Reader | None:
        if str(options.get("includeValuesInResponse", "")).lower() != "true":
            return None
        return Reader.of({"valueRenderOption": options.get("responseValueRenderOption", "FORMATTED_VALUE")})

    def note(self, place: str | None) -> None:
        row = None if place is None else f"{self.spreadsheet.spreadsheet_id}/{place}"
        self.request.app[STATE].ledger.note_effect(self.request[CALL], row=row)

    def apply(self, write: Write) -> None:
        values.apply(write)
        self.note(write.place)

    def reply(self, answer: dict[str, Any]) -> web.Response:
        return web.json_response(masks.apply(self._mask, answer))

    def _read_mask(self, fields: Collection[str]) -> masks.Mask:
        text = self.request.query.get("fields") or self.request.query.get("$fields")
        if not text:
            return {}
        try:
            mask = masks.parse(text)
            masks.check(mask, fields)
        except masks.InvalidMask as error:
            description = f"Error expanding 'fields' parameter. Cannot find matching fields for path '{error}'."
            violation = {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": str(error), "description": description}],
            }
            raise google_error(400, "Request contains an invalid argument.", [violation]) from None
        return mask

    def _open(self) -> Spreadsheet:
        state, caller = self.request.app[STATE], self.request[ARRIVAL].caller
        spreadsheet_id = self.request.match_info["spreadsheet_id"]
        check_access(spreadsheet_id, caller.project if caller else "", self.knobs)
        return state.workbook.open(spreadsheet_id, rows=self.knobs.grid_rows, columns=self.knobs.grid_columns)


async def get_spreadsheet(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("spreadsheetId", "properties", "sheets", "spreadsheetUrl", "namedRanges"))
    asked_for_data = "data" in request.query.get("fields", "")
    grid_data = asked_for_data or exchange.query.get("includeGridData", "").lower() == "true"
    return exchange.reply(
        documents.describe(exchange.spreadsheet, ranges=request.query.getall("ranges", []), grid_data=grid_data)
    )


async def values_get(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("range", "majorDimension", "values"))
    sheet, box = exchange.spreadsheet.find(request.match_info["range"])
    return exchange.reply(Reader.of(exchange.query).value_range(sheet, sheet.within(box)))


async def values_batch_get(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("spreadsheetId", "valueRanges"))
    reader, found = Reader.of(exchange.query), []
    for text in request.query.getall("ranges", []):
        sheet, box = exchange.spreadsheet.find(text)
        found.append(reader.value_range(sheet, sheet.within(box)))
    return exchange.reply({"spreadsheetId": exchange.spreadsheet.spreadsheet_id, "valueRanges": found})


async def values_update(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=_REPLY_FIELDS)
    body = await exchange.body("range", "majorDimension", "values")
    text = request.match_info["range"]
    if body.get("range", text) != text:
        raise BadRequest(f"Requested writing within range [{text}], but the body names [{body['range']}]")
    write = exchange.writer(exchange.query.get("valueInputOption")).update(exchange.spreadsheet, text, body)
    exchange.apply(write)
    return exchange.reply(values.update_reply(exchange.spreadsheet, write, echo=exchange.echo(exchange.query)))


async def values_append(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("spreadsheetId", "tableRange", "updates"))
    body = await exchange.body("range", "majorDimension", "values")
    writer = exchange.writer(exchange.query.get("valueInputOption"))
    sheet, _ = exchange.spreadsheet.find(request.match_info["range"])
    table = values.table_range(sheet)
    write = writer.append(exchange.spreadsheet, request.match_info["range"], body)
    exchange.apply(write)
    answer: dict[str, Any] = {"spreadsheetId": exchange.spreadsheet.spreadsheet_id}
    if table is not None:
        answer["tableRange"] = table
    answer["updates"] = values.update_reply(exchange.spreadsheet, write, echo=exchange.echo(exchange.query))
    return exchange.reply(answer)


async def values_clear(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("spreadsheetId", "clearedRange"))
    await exchange.body()
    place = values.clear(exchange.spreadsheet, request.match_info["range"], exchange.knobs.protected_ranges)
    exchange.note(place)
    return exchange.reply({"spreadsheetId": exchange.spreadsheet.spreadsheet_id, "clearedRange": place})


async def values_batch_update(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("spreadsheetId", *_TOTAL_FIELDS, "responses"))
    body = await exchange.body(
        "valueInputOption",
        "data",
        "includeValuesInResponse",
        "responseValueRenderOption",
        "responseDateTimeRenderOption",
    )
    writer, data = exchange.writer(body.get("valueInputOption")), body.get("data") or []
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise BadRequest("Invalid value at 'data' (type.googleapis.com/google.apps.sheets.v4.ValueRange)")
    writes: list[Write] = []
    for index, entry in enumerate(data):
        try:
            writes.append(writer.update(exchange.spreadsheet, str(entry.get("range", "")), entry))
        except BadRequest as error:
            raise BadRequest(f"Invalid data[{index}]: {error}") from None
    for write in writes:
        exchange.apply(write)
    echo = exchange.echo(body)
    answer: dict[str, Any] = {
        "spreadsheetId": exchange.spreadsheet.spreadsheet_id,
        "totalUpdatedRows": sum(write.rows for write in writes),
        "totalUpdatedColumns": sum(write.columns for write in writes),
        "totalUpdatedCells": sum(len(write.cells) for write in writes),
        "totalUpdatedSheets": len({write.sheet.sheet_id for write in writes}),
        "responses": [values.update_reply(exchange.spreadsheet, write, echo=echo) for write in writes],
    }
    return exchange.reply(answer)


async def batch_update(request: web.Request) -> web.Response:
    exchange = _Exchange(request, fields=("spreadsheetId", "replies", "updatedSpreadsheet"))
    body = await exchange.body("requests", "includeSpreadsheetInResponse", "responseRanges", "responseIncludeGridData")
    requests = body.get("requests")
    if not isinstance(requests, list) or not requests:
        raise BadRequest(_NO_REQUESTS)
    batch = SpreadsheetDraft(exchange.spreadsheet, protected=exchange.knobs.protected_ranges)
    replies = batch.carry_out(requests)
    batch.commit()
    for place in batch.places:
        exchange.note(place)
    return exchange.reply({"spreadsheetId": exchange.spreadsheet.spreadsheet_id, "replies": replies})
