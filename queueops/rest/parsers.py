"""Request bodies: JSON documents, and streams of JSON lines that are never whole in memory."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, TypeVar, cast

import pydantic_core
from django.conf import settings
from django.http import UnreadablePostError
from pydantic import BaseModel, ValidationError
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from queueops.core.errors import fields_of
from queueops.core.values.lines import lines_of
from queueops.core.values.numbers import MEGABYTE
from queueops.core.web.asking import BODY, ensure_wanted
from queueops.core.web.requests.body_cap import too_large
from queueops.core.web.requests.nul import NUL_ESCAPE

from .encoding import body_of
from .errors import IncompleteBody, InvalidInput, InvalidQuery, MalformedJSON, TooDeep

JSON = "application/json"
NDJSON = "application/x-ndjson"

MAX_DOCUMENT_BYTES = 32_000_000  # parsed, a document takes about ten times its size
SPOOL_BYTES = 1_000_000
LINES_READ_BYTES = 262_144

POSITION = re.compile(r" at line (\d+) column (\d+)\Z")
# A number that may not fit a double, which the parser would silently turn into infinity.
MAY_OVERFLOW = re.compile(rb"[eE]\+?\d{3}|(?<!\d)\d{309}")

Model = TypeVar("Model", bound=BaseModel)


class JSONDocument(BaseParser):
    """The parser for `request.data` and the OpenAPI document; views read bodies with the functions below."""

    media_type = JSON

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        return parse_json(stream.read())


class JSONLines(BaseParser):
    """Names the media type and parses nothing: DRF takes a chunked body, which has no length, for an empty one."""

    media_type = NDJSON

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        raise NotImplementedError("spool_lines() reads it")


def media_type_of(request: Request, *accepted: str) -> str:
    """
    Return the body's media type.

    Raises:
        UnsupportedMediaType: The media type is not among those accepted (415).
    """
    media_type = request.content_type.partition(";")[0].strip().lower()
    if media_type not in accepted:
        raise UnsupportedMediaType(
            request.content_type,
            f"Send {' or '.join(accepted)}, not {media_type or 'a body without a type'}.",
        )
    return media_type


def read_document(request: Request, *, limit_bytes: int | None = None) -> bytes:
    """
    Read a JSON body; an empty one needs no media type.

    Args:
        limit_bytes: By default the size of a body with one job of the largest payload.

    Raises:
        UnsupportedMediaType, UnsupportedEncoding, IncompleteBody, MalformedGzip
        BodyTooLarge: The body is too large, as sent or inflated; checked here even if no server in front does.
    """
    limit = limit_bytes or max_job_bytes()
    try:
        raw = body_of(request, limit_bytes=limit).read(limit + 1)
    except UnreadablePostError as error:
        raise IncompleteBody from error
    if len(raw) > limit:
        raise too_large(limit)
    if raw:
        media_type_of(request, JSON)
    return raw


def max_job_bytes() -> int:
    return settings.QUEUEOPS.max_job_bytes


def parse_document(raw: bytes, *, any_number: bool = False) -> Any:
    """
    Parse UTF-8, with or without its byte order mark. Texts may hold NUL characters, and a number that is too large
    becomes infinity.

    Args:
        any_number: Accept NaN and infinity, which the caller must refuse.

    Raises:
        MalformedJSON: The message has line and column.
        TooDeep
    """
    try:
        return pydantic_core.from_json(without_mark(raw), allow_inf_nan=any_number)
    except ValueError as error:
        raise _as_malformed(str(error)) from None


def without_mark(begin: bytes) -> bytes:
    """
    Return the beginning of a body without the byte order mark that Windows' programs put before UTF-8.

    Raises:
        MalformedJSON: The body is UTF-16, as `>` and Out-File of Windows PowerShell write it.
    """
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")) or begin[1:2] == b"\0":
        raise MalformedJSON(
            "The body is UTF-16, and UTF-8 is wanted. In Windows PowerShell write it with Out-File -Encoding utf8."
        )
    return begin.removeprefix(b"\xef\xbb\xbf")


def parse_json(raw: bytes, *, any_number: bool = False) -> Any:
    """
    Parse strictly: UTF-8, no NaN or infinity, no NUL character, no lone surrogates.

    Args:
        any_number: As in `parse_document`; the caller must then refuse NUL characters, too.

    Raises:
        MalformedJSON: The message has line and column.
        TooDeep
    """
    parsed = parse_document(raw, any_number=any_number)
    if any_number:
        return parsed
    if NUL_ESCAPE.search(raw):
        raise MalformedJSON("The body holds a NUL character (\\u0000), which cannot be stored.")
    if MAY_OVERFLOW.search(raw):
        try:
            json.dumps(parsed, allow_nan=False)
        except ValueError:
            raise MalformedJSON("The body holds a number that is too large.") from None
    return parsed


def parse_object(raw: bytes, *, any_number: bool = False) -> dict[str, Any]:
    """
    Parse a JSON object; an empty body counts as an empty object.

    Raises:
        MalformedJSON, TooDeep
        InvalidInput: The body is not an object.
    """
    parsed = parse_json(raw, any_number=any_number) if raw else {}
    if not isinstance(parsed, dict):
        raise InvalidInput("The body must be a JSON object.")
    return parsed


def parse_as(model: type[Model], raw: bytes, *, any_number: bool = False) -> Model:
    """
    Parse a body into one of `inputs`' models.

    Args:
        any_number: As in `parse_json`.

    Raises:
        MalformedJSON, TooDeep
        InvalidInput: With the path of each bad or unknown field.
    """
    parsed = parse_object(raw, any_number=any_number)
    try:
        return model.model_validate(parsed)
    except ValidationError as error:
        fields = fields_of(error, known=model.model_fields)
        whole = fields.pop("", None)  # an error of several fields together has no path
        raise InvalidInput(whole[0] if whole else "", fields=fields) from None


def parse_query_as(model: type[Model], given: Mapping[str, str]) -> Model:
    """
    Parse query parameters into one of `inputs`' models.

    Raises:
        InvalidQuery
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidQuery(fields=fields_of(error, known=model.model_fields)) from None


def digest_of(request: Request, raw: bytes, *, path: str = "") -> str:
    """
    Digest the parts that decide the meaning of a request: method, address and body.

    Args:
        path: Replaces the request's address, if several addresses mean the same.
    """
    return _started_digest(request, raw, path).hexdigest()


@dataclass(frozen=True, slots=True)
class SpooledLines:
    """
    The lines of a body that is kept in a file.

    Attributes:
        lines: Can be read once. `_lines` says what becomes of a line that is too long.
        digest: The request's digest, which must be known before the first line is used.
        count: How many lines there are, blank ones perhaps included. If these are `enough`, the lines are counted anew
            without blank ones, up to `enough`.
    """

    lines: Iterator[bytes]
    digest: str
    count: int


def spool_lines(request: Request, *, enough: int) -> SpooledLines:
    """
    Keep the body where it can be read twice, while digesting it and counting its lines.

    A gzip body is kept as it came and inflated twice: an inflated bomb is never on the disk.

    Raises:
        UnsupportedEncoding, IncompleteBody, MalformedGzip
        MalformedJSON: The body is UTF-16.
        BodyTooLarge: The inflated body has more than QUEUEOPS_MAX_BODY_MB.
        ClientLeft, OutOfTime: Reading the lines may raise these, too.
    """
    digest = _started_digest(request, b"")
    kept = _kept_aside(request)
    ends = 1  # one more than the line ends: the last line needs none
    body = _inflated(request, kept)
    is_first = True
    while block := body.read(LINES_READ_BYTES):
        ensure_wanted()
        digest.update(block)
        ends += (without_mark(block) if is_first else block).count(b"\n")
        is_first = False
    if ends >= enough:  # some lines may be blank, and are not counted
        ends = sum(1 for _ in islice((line for line in _lines(_inflated(request, kept)) if line.strip()), enough))
    return SpooledLines(_lines(_inflated(request, kept)), digest.hexdigest(), ends)


def _kept_aside(request: Request) -> IO[bytes]:
    """Return a file of the body as it came, which can be read repeatedly: the server's own file, or a copy."""
    if (kept := request.META.get(BODY)) is not None:
        return cast("IO[bytes]", kept)
    spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 (lives as long as the lines)
    try:
        while block := request.read(LINES_READ_BYTES):
            spool.write(block)
    except UnreadablePostError as error:
        raise IncompleteBody from error
    return cast("IO[bytes]", spool)


def _inflated(request: Request, kept: IO[bytes]) -> IO[bytes]:
    kept.seek(0)
    return body_of(request, limit_bytes=settings.QUEUEOPS.max_body_mb * MEGABYTE, source=kept)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """
    Yield lines as `lines_of` does.

    A line longer than any job may be is cut to its beginning. The service refuses that beginning for its length: the
    error names the line, and memory stays bounded.
    """
    limit = max_job_bytes() + 1  # one byte more than the service accepts
    rest, is_cut, is_first = b"", False, True
    while block := stream.read(LINES_READ_BYTES):
        ensure_wanted()
        block, is_first = without_mark(block) if is_first else block, False
        whole = block.rfind(b"\n") + 1
        if not whole:
            rest += b"" if is_cut else block
        else:
            text, rest = rest + block[:whole], block[whole:]
            start = text.index(b"\n") + 1 if is_cut else 0
            is_cut = False
            for line in lines_of(text, start):
                yield line[:limit]
        if len(rest) >= limit:
            yield rest[:limit]
            rest, is_cut = b"", True
    if rest:
        yield rest


def _started_digest(request: Request, raw: bytes, path: str = "") -> hashlib._Hash:
    return hashlib.sha256(f"{request.method} {path or request.get_full_path()}\n".encode() + raw)


def _as_malformed(message: str) -> MalformedJSON | TooDeep:
    if message.startswith("recursion limit"):
        return TooDeep()
    found = POSITION.search(message)
    if found is None:
        return MalformedJSON(f"Not valid JSON: {message}.")
    line, column = map(int, found.groups())
    return MalformedJSON(f"Not valid JSON: {message}.", line=line, column=column)
