"""Whether an answer of the API is what its OpenAPI document says."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Any

import jsonschema
from drf_spectacular.generators import SchemaGenerator

ROOT = "/api/v1/"
SELF = (f"{ROOT}schema/", f"{ROOT}docs/")
# What is answered before an operation is known, and to requests that no document describes.
OF_NO_OPERATION = {404: "not_found", 405: "method_not_allowed"}


@cache
def document() -> dict[str, Any]:
    """Return the document, in which no object has fields that it does not name."""
    found: dict[str, Any] = json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True), default=str))
    for schema in found["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return found


@cache
def _paths() -> list[tuple[re.Pattern[str], str]]:
    """Each path of the document and what matches it; some answer without their last slash as well."""
    paths = sorted(document()["paths"])
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + "?"), path) for path in paths]


def path_of(address: str) -> str | None:
    """The path of the document that an address is one of."""
    return next((path for pattern, path in _paths() if pattern.fullmatch(address)), None)


@cache
def _validator(path: str, method: str, status: str, media: str) -> Any:
    content = document()["paths"][path][method]["responses"][status]["content"]
    assert media in content, f"{method.upper()} {path} answers {status} with {media}, which is not described"
    return jsonschema.Draft202012Validator({**content[media]["schema"], "components": document()["components"]})


def check(response: Any) -> None:
    """
    Compare an answer with what is described for its address, method, status and media type.

    Raises:
        AssertionError: It differs; the message says where.
    """
    request = response.wsgi_request
    address, method, status = request.path, request.method.lower(), response.status_code
    if not address.startswith(ROOT) or address in SELF or method in ("head", "options"):
        return
    path = path_of(address)
    body = _body_of(response)
    if path is None or method not in document()["paths"][path]:
        assert json.loads(body)["error"]["code"] == OF_NO_OPERATION.get(status), (method, address, status)
        return
    described = document()["paths"][path][method]["responses"]
    assert str(status) in described, f"{method.upper()} {path} answers {status}, which is not described"
    media = response["Content-Type"].partition(";")[0]
    validator = _validator(path, method, str(status), media)
    told = json.loads(body) if media == "application/json" else body.decode()
    error = jsonschema.exceptions.best_match(validator.iter_errors(told))
    assert error is None, f"{method.upper()} {path} answers {status}: {error.message} at {error.json_path}"


def _body_of(response: Any) -> bytes:
    if response.streaming:
        body: bytes = b"".join(response.streaming_content)
        response.streaming_content = [body]  # for the test
    else:
        body = response.content
    return gzip.decompress(body) if response.headers.get("Content-Encoding") == "gzip" else body
