"""Answers given before Django sees a request, in the one error shape and readable by pages of other origins."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from queueops.core.errors import QueueOpsError

from .error_forms import in_form_of

Headers = list[tuple[bytes, bytes]]
CHALLENGE = 'Bearer realm="QueueOps"'


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """
    The other origins whose pages may read an answer. The rules are those of django-cors-headers, which never sees these
    answers.

    Attributes:
        paths: A regular expression of paths that they may read; empty: no path.
        origins: The origins, each with its scheme.
        exposed: Headers that scripts may read.
    """

    paths: str = ""
    origins: Collection[str] = ()
    exposed: Collection[str] = ()

    def headers(self, path: str, origin: str) -> Headers:
        if not self.paths or not re.match(self.paths, path):
            return []
        if origin not in self.origins:
            return [(b"vary", b"origin")]
        return [
            (b"vary", b"origin"),
            (b"access-control-allow-origin", origin.encode("latin1")),
            (b"access-control-expose-headers", ", ".join(self.exposed).encode()),
        ]


NO_ORIGIN = CrossOrigin()


def refusal(
    error: QueueOpsError, *, path: str, headers: Iterable[tuple[bytes, bytes]], cross_origin: CrossOrigin
) -> tuple[Headers, bytes]:
    """
    Return the headers and the body of an error's response, in the form of the API at the path.

    Args:
        path, headers: The request's; header names in lower case.
    """
    body = json.dumps(in_form_of(path, error.status, error.as_dict())[1]).encode()
    origin = next((value.decode("latin1") for name, value in headers if name == b"origin"), "")
    told: Headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *cross_origin.headers(path, origin),
    ]
    if error.status == HTTPStatus.UNAUTHORIZED:
        told.append((b"www-authenticate", CHALLENGE.encode()))
    if seconds := error.details.get("retry_after"):
        told.append((b"retry-after", str(seconds).encode()))
    return told, body
