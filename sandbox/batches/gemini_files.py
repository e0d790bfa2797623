"""Gemini's files: uploaded in two steps, downloaded in one."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox.batches import answers
from sandbox.batches.store import MAX_FILES_BYTES, StoredFile
from sandbox.envelopes import google_error
from sandbox.gemini import errors
from sandbox.state import BODY, CALL, STATE

NAME = "gemini"


def add_routes(app: web.Application) -> None:
    app.router.add_post("/upload/v1beta/files", upload)
    app.router.add_put("/upload/v1beta/files", upload)
    app.router.add_get("/v1beta/files/{file_id:[^/:]+}", read)
    app.router.add_delete("/v1beta/files/{file_id:[^/:]+}", delete)
    app.router.add_get("/download/v1beta/files/{file_id:[^/:]+}:download", download)


async def upload(request: web.Request) -> web.Response:
    """Start an upload and return its address, or receive its data; the request's command header says which."""
    command, book = request.headers.get("X-Goog-Upload-Command", ""), request.app[STATE].batches
    project = answers.project_of(request)
    if command == "start":
        stored = StoredFile(
            id=uuid4().hex[:12], provider=NAME, project=project, filename=_display_name(request[BODY]), purpose="batch"
        )
        stored.is_complete = False
        book.files[stored.id] = stored
        address = request.url.origin().join(request.rel_url).with_query(upload_id=stored.id)
        return web.Response(headers={"X-Goog-Upload-URL": str(address), "X-Goog-Upload-Status": "active"})
    found = book.file(request.query.get("upload_id", ""), provider=NAME, project=project)
    if found is None or found.is_complete or "finalize" not in command:
        raise google_error(400, "Start an upload, then send all of it with the command upload, finalize.")
    if not book.has_room(len(request[BODY])):
        raise google_error(400, f"The sandbox stores at most {MAX_FILES_BYTES} bytes of files.")
    found.data, found.is_complete = request[BODY], True
    request.app[STATE].ledger.note_effect(request[CALL])
    headers = {"X-Goog-Upload-Status": "final"}
    return web.json_response({"file": describe(found, request)}, headers=headers)


async def read(request: web.Request) -> web.Response:
    return web.json_response(describe(stored_file(request, request.match_info["file_id"]), request))


async def delete(request: web.Request) -> web.Response:
    del request.app[STATE].batches.files[stored_file(request, request.match_info["file_id"]).id]
    return web.json_response({})


async def download(request: web.Request) -> web.StreamResponse:
    found = stored_file(request, request.match_info["file_id"])
    if found.results is None:
        return web.Response(body=found.data, content_type="application/octet-stream")
    rate = request.app[STATE].gate.knobs.batches.results_error_rate
    answers.fail_sometimes(request, rate, google_error(503, errors.MESSAGES[503]))
    return await answers.send_results(request, [found.results])


def stored_file(request: web.Request, file_id: str) -> StoredFile:
    """
    Return a file of the caller's project.

    Raises:
        ApiError: 403, as the service answers for a file that does not exist.
    """
    project = answers.project_of(request)
    found = request.app[STATE].batches.file(file_id, provider=NAME, project=project)
    if found is None or not found.is_complete:
        message = f"You do not have permission to access the File {file_id} or it may not exist."
        raise google_error(403, message)
    return found


def describe(stored: StoredFile, request: web.Request) -> dict[str, Any]:
    return {
        "name": f"files/{stored.id}",
        "displayName": stored.filename,
        "mimeType": "application/jsonl",
        "sizeBytes": str(stored.bytes()),
        "createTime": datetime.fromtimestamp(stored.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z"),
        "uri": f"{request.url.origin()}/v1beta/files/{stored.id}",
        "state": "ACTIVE",
    }


def _display_name(body: bytes) -> str:
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise google_error(400, "Invalid JSON payload received. Unexpected token.") from None
    described = asked.get("file") if isinstance(asked, dict) else None
    named = described if isinstance(described, dict) else {}
    return str(named.get("displayName") or named.get("display_name") or "file")
