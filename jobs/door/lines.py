"""Lines of a door's batch as jobs, each with its body as it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any

import pydantic_core

from jobs.services.submit.documents.accept_document import Line
from queueops.core.errors import QueueOpsError
from queueops.core.values.written import member

from .errors import BadDoorRequest
from .models import MAX_MODEL_NAME_LENGTH, ModelRoute, Protocol
from .previous import with_previous
from .routes import route_for

LINE_READ_BYTES = 262_144
MAX_SHOWN_LENGTH = 80
MAX_CUSTOM_ID_LENGTH = 160  # with `key_prefix` before it, it has to fit into an idempotency key
IN_BODY = "body."  # errors of llm.call put this before the place of a fault in the body
MEMBERS = ("custom_id", "method", "url", "body")


@dataclass(slots=True)
class LineReader:
    """
    Turns the lines of one batch into jobs.

    Attributes:
        endpoint: The provider's endpoint that all jobs call, such as /v1/chat/completions.
        key_prefix: What stands before the `custom_id` in a job's idempotency key.
        complete_by: By when the jobs are wanted.
        most_bytes: The greatest length of a line, in bytes. A longer line is read in part, and refused.
        previous: The responses in the background that requests may go on from, see `find_previous`.
    """

    routes: Sequence[ModelRoute]
    provider: Protocol
    endpoint: str
    key_prefix: str
    complete_by: datetime
    most_bytes: int
    previous: Mapping[str, str | None] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def jobs_of_file(self, file: IO[bytes]) -> Iterator[Line]:
        """The jobs of a file with a request in each line, as `submit_batch` takes them."""
        for line in _lines(file, self.most_bytes + 1):
            if not line.strip():
                yield line
                continue
            try:
                yield self._job_of_line(line)
            except QueueOpsError as error:
                yield error

    def job_of(self, custom_id: Any, body: Any, text: str | None, *, where: str = "body") -> str:
        """
        Return a request as a job, in JSON.

        Args:
            text: The body as it was written.
            where: The name of the body in a line.

        Raises:
            BadDoorRequest, NoModelRoute
        """
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_LENGTH or "\0" in custom_id:
            raise _bad("custom_id", f"custom_id must be a text of 1 to {MAX_CUSTOM_ID_LENGTH} characters")
        if custom_id in self._seen:
            raise _bad("custom_id", f"custom_id {custom_id!r} stands in an earlier line, too")
        if not isinstance(body, dict) or text is None:
            raise _bad(where, f"{where} must be an object: the request to {self.endpoint}")
        body, text = with_previous(body, text, self.previous, where=f"{where}.")
        payload = call_payload(self.routes, self.provider, body, text, endpoint=self.endpoint, where=where)
        self._seen.add(custom_id)
        job = {
            "kind": "llm.call",
            "idempotency_key": self.key_prefix + custom_id,
            "complete_by": self.complete_by.isoformat(),
        }
        return f'{json.dumps(job)[:-1]}, "payload": {payload}}}'

    def _job_of_line(self, line: bytes) -> str:
        if len(line) > self.most_bytes:
            raise _bad("", f"The line has more than {self.most_bytes:,} bytes")
        try:
            given = pydantic_core.from_json(line)
            text = line.decode()
        except ValueError as error:
            raise BadDoorRequest(f"The line is not valid JSON: {error}.") from None
        if not isinstance(given, dict):
            raise _bad("", 'Each line must be an object: {"custom_id", "method", "url", "body"}')
        if (unknown := next((name for name in given if name not in MEMBERS), None)) is not None:
            raise _bad(shown(unknown), f"{shown(unknown)!r} is no member of a line; known: {', '.join(MEMBERS)}")
        if given.get("method") != "POST":
            raise _bad("method", "method must be POST")
        if given.get("url") != self.endpoint:
            raise _bad("url", f"url must be the batch's endpoint, {self.endpoint}")
        return self.job_of(given.get("custom_id"), given.get("body"), member(text, "body"))


def call_payload(
    routes: Sequence[ModelRoute],
    provider: Protocol,
    body: dict[str, Any],
    text: str,
    *,
    endpoint: str,
    where: str = "body",
) -> str:
    """
    Return the payload of `llm.call` for a request, in JSON with the body as it was written.

    Raises:
        BadDoorRequest, NoModelRoute
    """
    within = f"{where}." if where else ""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise _bad(f"{within}model", "model is missing")
    if len(model) > MAX_MODEL_NAME_LENGTH or "\0" in model:
        raise _bad(f"{within}model", f"model has at most {MAX_MODEL_NAME_LENGTH} characters")
    for name in ("stream", "stream_options"):
        if body.get(name):
            raise _bad(f"{within}{name}", f"Answers do not come in pieces here: leave {name} out")
    route = route_for(routes, model, provider)
    named: dict[str, Any] = {"provider": route.provider, "endpoint": endpoint, "credential": route.credential}
    if route.service:
        named["service"] = route.service
    return f'{json.dumps(named)[:-1]}, "body": {text}}}'


def shown(name: str) -> str:
    """Shorten a name that a client gave, for an error: a file may have a thousand names of any length."""
    return name[:MAX_SHOWN_LENGTH].replace("\0", "\N{REPLACEMENT CHARACTER}")


def _bad(param: str, message: str) -> BadDoorRequest:
    return BadDoorRequest(f"{message}.", fields={param: [message]} if param else None)


def fault_of(fields: Mapping[str, Sequence[str]], message: str) -> tuple[str, str]:
    """
    Return the place of a request's first fault, by its name in the provider's own body, and the fault.

    Args:
        fields, message: The error about the job that was made of the request.
    """
    for name, said in fields.items():
        place, _, rest = said[0].partition(" ")
        if name == "payload" and place.startswith(IN_BODY):
            return place.removeprefix(IN_BODY), f"{place.removeprefix(IN_BODY)} {rest}."
        return name, message if said[0] in message else f"{message} {name}: {said[0]}."
    return "", message


def refuse_unknown_members(given: dict[str, Any], known: Sequence[str]) -> None:
    """
    Raises:
        BadDoorRequest
    """
    if (unknown := next((name for name in given if name not in known), None)) is not None:
        name = shown(unknown)
        raise BadDoorRequest(
            f"{name!r} is not taken here; known: {', '.join(known)}.", fields={name: ["not taken here"]}
        )


def _lines(file: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is longer than `limit` bytes, only the first `limit`."""
    is_first = True
    while line := file.readline(limit):
        if len(line) == limit and not line.endswith(b"\n"):
            while (rest := file.readline(LINE_READ_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield line.removeprefix(b"\xef\xbb\xbf") if is_first else line
        is_first = False
