"""A provider of batches within the test's process, which says how often each line was paid for."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.handlers.errors import ProviderError
from queueops.core.outbound.client import OutboundResponse

_round = count()


@dataclass
class Provider:
    """OpenAI's files and batches; a batch is worked through, and paid for, when it is made."""

    files: dict[str, bytes] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    paid: Counter[str] = field(default_factory=Counter)

    def answer(self, method: str, path: str, body: bytes | None) -> bytes:  # noqa: PLR0911 (one for each call)
        match method, path.split("?", maxsplit=1)[0].strip("/").split("/"):
            case "POST", ["files"]:
                name = f"file-{len(self.files) + len(self.batches)}-{next(_round)}"
                self.files[name] = (body or b"").split(b"\r\n\r\n")[2].rpartition(b"\r\n--")[0]
                self.named[name] = (body or b"").partition(b'filename="')[2].partition(b'"')[0].decode()
                return _json({"id": name})
            case "GET", ["files"]:
                found = [{"id": name, "filename": self.named.get(name, "")} for name in self.files]
                return _json({"data": found, "has_more": False})
            case "DELETE", ["files", name]:
                self.files.pop(name, None)
                return _json({"deleted": True})
            case "GET", ["files", name, "content"]:
                return self.files[name]
            case "POST", ["batches"]:
                return _json(self._make(json.loads(body or b"{}")))
            case "GET", ["batches"]:
                return _json({"data": list(self.batches.values()), "has_more": False})
            case "GET", ["batches", name]:
                return _json(self.batches[name])
        raise AssertionError(f"{method} {path}")

    def _make(self, asked: dict[str, Any]) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.files[asked["input_file_id"]].split(b"\n")]
        results = []
        for line in lines:
            prompt = line["body"]["messages"][-1]["content"]
            self.paid[prompt] += 1
            message = {"choices": [{"message": {"content": f"to {prompt}"}, "finish_reason": "stop"}]}
            results.append({"custom_id": line["custom_id"], "response": {"status_code": 200, "body": message}})
        name = f"batch-{len(self.batches)}-{next(_round)}"
        self.files[f"out-{name}"] = b"\n".join(_json(one) for one in reversed([*results, *results[:2]])) + b"\n"
        self.batches[name] = {
            "id": name,
            "status": "completed",
            "metadata": asked["metadata"],
            "request_counts": {"completed": len(lines)},
            "output_file_id": f"out-{name}",
        }
        return self.batches[name]


@dataclass
class Telling(Provider):
    """
    Shows the results that a test sets.

    Attributes:
        output, errors: The lines of both files: each the number of a line of the batch and what stands beside its id.
        told: What the batch says of itself besides.
    """

    output: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    errors: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)

    def _make(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids = [json.loads(line)["custom_id"] for line in self.files[asked["input_file_id"]].split(b"\n")]
        made = super()._make(asked)
        for role, lines in (("output", self.output), ("error", self.errors)):
            file = f"{role}-{made['id']}"
            self.files[file] = b"".join(
                _json({"custom_id": ids[number], **rest}) + b"\n" for number, rest in lines if number < len(ids)
            )
            made[f"{role}_file_id"] = file if lines else None
        made["request_counts"] |= {"total": len(ids)}
        made |= self.told
        return made


class ProviderWire(CallLoop):
    """Calls that reach a provider within the test's process."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self.provider = provider

    async def send(self, method, url, *, headers, body=None, on_line=None, on_piece=None):
        try:
            content = self.provider.answer(method, url.partition("/v1/")[2], body)
        except KeyError as error:
            raise ProviderError(404, f"there is no {error}", code="http_404", outcome="answered") from None
        if on_line is not None:
            for line in content.splitlines():
                on_line(line)
        return OutboundResponse(200, CIMultiDictProxy(CIMultiDict()), content, is_truncated=False, charset=None)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
