"""A line is paid for once, whatever gets lost, comes late or twice, and wherever the process dies."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from jobs.handlers.errors import ProviderError
from jobs.models import Job, ProviderBatch
from jobs.services.provider_batches.calls import CallLoop
from queueops.core.outbound.client import OutboundResponse
from tests.support.examples import examples
from tests.support.provider_batches import make_round

pytestmark = pytest.mark.django_db(transaction=True)

FATES = ["well", "lost", "refused", "died before", "died after", "cut"]
MOST_STEPS = 200
_round = count()


class Died(BaseException):
    """The process was killed in the middle of a call."""


@dataclass
class Provider:
    """OpenAI's files and batches; a batch is worked through, and paid for, when it is made."""

    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    paid: Counter[str] = field(default_factory=Counter)

    def answer(self, method: str, path: str, body: bytes | None) -> bytes:
        match method, path.split("?", maxsplit=1)[0].strip("/").split("/"):
            case "POST", ["files"]:
                name = f"file-{len(self.files) + len(self.batches)}-{next(_round)}"
                self.files[name] = (body or b"").split(b"\r\n\r\n")[2].rpartition(b"\r\n--")[0]
                return _json({"id": name})
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


class Wire(CallLoop):
    """Calls that reach the provider above, each with the fate that is next."""

    def __init__(self, provider: Provider, fates: list[str]) -> None:
        super().__init__()
        self.provider, self.fates = provider, fates

    async def send(self, method, url, *, headers, body=None, on_line=None):
        fate = self.fates.pop(0) if self.fates else "well"
        if fate == "died before":
            raise Died
        if fate == "refused":
            raise ProviderError(500, "out of order", code="http_500", outcome="answered")
        content = self.provider.answer(method, url.partition("/v1/")[2], body)
        if fate == "died after":
            raise Died
        if fate == "lost":
            raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")
        if on_line is not None:
            lines = content.splitlines()
            for line in lines[: len(lines) // 2] if fate == "cut" else lines:
                on_line(line)
            if fate == "cut":
                raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")
        return OutboundResponse(200, CIMultiDictProxy(CIMultiDict()), content, is_truncated=False, charset=None)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(fates=st.lists(st.sampled_from(FATES), max_size=14))
def test_whatever_becomes_of_the_calls_each_line_is_paid_for_once_and_each_job_is_completed(lane, fates):
    provider, given_fates = Provider(), list(fates)
    lane.credential_once()
    lane.submit(6, prompt=f"in round {next(_round)}")
    for _ in range(MOST_STEPS):
        ProviderBatch.objects.filter(closed_at=None).update(
            look_at=timezone.now(), create_before=timezone.now() - timedelta(hours=1)
        )
        wire = Wire(provider, given_fates)
        try:
            make_round(wire)
        except Died:
            pass  # the next round of this loop is another process
        finally:
            wire.close()
        if not Job.objects.filter(finished_at=None).exists() and not ProviderBatch.objects.filter(closed_at=None):
            break
    else:
        pytest.fail("the jobs did not end")
    assert set(provider.paid.values()) == {1}
    assert set(Job.objects.values_list("status", flat=True)) == {"completed"}
