"""OpenAI's files: the input of a batch, and its results."""

from typing import Any
from uuid import uuid4

from aiohttp import web

from sandbox.batches import answers
from sandbox.batches.intake import read_upload
from sandbox.batches.store import MAX_FILES_BYTES, StoredFile
from sandbox.envelopes import ApiError
from sandbox.openai.errors import openai_error
from sandbox.state import CALL, STATE, UPLOAD

NAME = "openai"
UPLOAD_PATH = "/v1/files"


def add_routes(app: web.Application) -> None:
    app.router.add_post(UPLOAD_PATH, upload)
    app.router.add_get(UPLOAD_PATH, list_files)
    app.router.add_get("/v1/files/{file_id}", read)
    app.router.add_delete("/v1/files/{file_id}", delete)
    app.router.add_get("/v1/files/{file_id}/content", content)


async def take_upload(request: web.Request) -> None:
    """
    Read the form of an upload.

    Raises:
        ApiError: The upload is too large, or is not a form.
    """
    most = request.app[STATE].gate.knobs.openai.batch_bytes

    def too_large() -> ApiError:
        return openai_error(413, f"The file is larger than {most} bytes.")

    try:
        request[UPLOAD] = await read_upload(request, most_bytes=most, too_large=too_large)
    except ValueError:
        raise openai_error(400, "Could not parse multipart form") from None


async def upload(request: web.Request) -> web.Response:
    form, book = request[UPLOAD], request.app[STATE].batches
    if form.filename is None:
        raise openai_error(400, "'file' is a required property")
    if form.fields.get("purpose") != "batch":
        raise openai_error(400, "'purpose' is a required property; the sandbox knows batch.", param="purpose")
    if not book.has_room(len(form.data)):
        raise openai_error(507, f"The sandbox stores at most {MAX_FILES_BYTES} bytes of files.")
    stored = StoredFile(
        id=f"file-{uuid4().hex[:24]}",
        provider=NAME,
        project=answers.project_of(request),
        filename=form.filename,
        purpose="batch",
        data=form.data,
    )
    book.files[stored.id] = stored
    request.app[STATE].ledger.note_effect(request[CALL])
    return web.json_response(describe(stored))


async def list_files(request: web.Request) -> web.Response:
    """List files, the newest first; with `after`, the files that follow this id in the list."""
    limit, purpose, after = (
        request.query.get("limit", "10000"),
        request.query.get("purpose"),
        request.query.get("after"),
    )
    if not (limit.isdecimal() and 1 <= int(limit) <= 10_000):  # noqa: PLR2004
        raise openai_error(400, "Invalid 'limit': from 1 to 10000.", param="limit")
    project, found = answers.project_of(request), list[StoredFile]()
    for stored in reversed(request.app[STATE].batches.files.values()):
        if (stored.provider, stored.project) == (NAME, project) and purpose in {None, stored.purpose}:
            found.append(stored)
    start = next((place + 1 for place, stored in enumerate(found) if stored.id == after), 0)
    page = found[start : start + int(limit)]
    ends = {"first_id": page[0].id, "last_id": page[-1].id} if page else {"first_id": None, "last_id": None}
    has_more = start + len(page) < len(found)
    return web.json_response({"object": "list", "data": [describe(one) for one in page], **ends, "has_more": has_more})


async def read(request: web.Request) -> web.Response:
    return web.json_response(describe(_file(request)))


async def delete(request: web.Request) -> web.Response:
    stored = _file(request)
    del request.app[STATE].batches.files[stored.id]
    return web.json_response({"id": stored.id, "object": "file", "deleted": True})


async def content(request: web.Request) -> web.StreamResponse:
    stored = _file(request)
    if stored.results is None:
        return web.Response(body=stored.data, content_type="application/octet-stream")
    rate = request.app[STATE].gate.knobs.batches.results_error_rate
    answers.fail_sometimes(request, rate, openai_error(500, "The server had an error while processing your request."))
    return await answers.send_results(request, [stored.results])


def describe(stored: StoredFile) -> dict[str, Any]:
    return {
        "id": stored.id,
        "object": "file",
        "bytes": stored.bytes(),
        "created_at": int(stored.created_at),
        "expires_at": None,
        "filename": stored.filename,
        "purpose": stored.purpose,
        "status": "processed",
        "status_details": None,
    }


def _file(request: web.Request) -> StoredFile:
    file_id = request.match_info["file_id"]
    project = answers.project_of(request)
    found = request.app[STATE].batches.file(file_id, provider=NAME, project=project)
    if found is None:
        raise openai_error(404, f"No such File object: {file_id}", param="id")
    return found
