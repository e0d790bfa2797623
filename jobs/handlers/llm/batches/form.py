"""How `llm.generate` goes by batch: each provider's API, and its dialect for the lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from jobs.handlers.batch_form import BatchApi, BatchForm
from jobs.handlers.errors import SHOULD_RETRY, ProviderError
from jobs.handlers.llm import errors as llm_errors
from jobs.handlers.llm.access import key_of
from jobs.handlers.llm.dialect import Dialect, Generation
from jobs.handlers.llm.openai import INSTEAD, is_azure
from jobs.handlers.llm.reading import AnswerReader
from jobs.handlers.llm.requests.fitting import with_data
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Done
from queueops.core.outbound.client import OutboundResponse
from queueops.tenancy.secrets.credentials import OpenCredential


def batch_apis(dialects: Mapping[str, Dialect]) -> dict[str, BatchApi]:
    return {name: dialect.batches for name, dialect in dialects.items() if dialect.batches is not None}


def batch_form(dialects: Mapping[str, Dialect]) -> BatchForm:
    """Return the batch form for LlmGenerate payloads. A payload that is split takes several calls and goes live."""

    def compose(payload: LlmGenerate, credential: OpenCredential) -> Mapping[str, Any]:
        whole = payload.model_copy(update={"stream": False})
        key = key_of(payload.service_name, credential)
        dialect = dialects[payload.provider]
        body = dialect.compose(whole, payload.parts[0], credential.base_url, key).body
        return dialect.adapt(body, credential.takes(payload.model))

    def read(payload: LlmGenerate, body: Any, secrets: tuple[str, ...]) -> Done:
        dialect = dialects[payload.provider]
        answer = answer_in(dialect, payload.service_name, body, secrets)
        cost, usage = dialect.cost(answer), answer.used()
        result = llm_errors.stored(answer.result(), secrets, service=payload.service_name, used=(cost, usage))
        return Done(
            with_data(payload, result, dialect, answer),
            cost=cost,
            known_cost=answer.counts.get("input_tokens"),
            usage=usage,
        )

    def refuse(payload: LlmGenerate, status: int, body: Any, secrets: tuple[str, ...]) -> ProviderError:
        return refusal_of(dialects[payload.provider], payload.service_name, status, body, secrets=secrets)

    def api_of(payload: LlmGenerate, base_url: str) -> str:
        # Azure's batches need deployments that answer no live calls: at its deadline such a job could not go live.
        is_taken = (
            payload.provider in apis and len(payload.parts) == 1 and payload.combine is None and not is_azure(base_url)
        )
        return payload.provider if is_taken else ""

    apis = batch_apis(dialects)
    return BatchForm(
        apis=apis,
        api_of=api_of,
        key_of=key_of,
        compose=compose,
        read=read,
        refuse=refuse,
    )


def answer_in(dialect: Dialect, service: str, body: Any, secrets: tuple[str, ...]) -> Generation:
    """Read the answer that a line was given; raises ProviderError."""
    reader = AnswerReader(dialect, service=service, secrets=secrets)
    reader.take_whole(json.dumps(body).encode())
    return reader.answer


def refusal_of(dialect: Dialect, service: str, status: int, body: Any, *, secrets: tuple[str, ...]) -> ProviderError:
    """Return the error of a line that the provider refused."""
    text = json.dumps(body).encode()
    response = OutboundResponse(status, CIMultiDictProxy(CIMultiDict()), text, is_truncated=False, charset="utf-8")
    failure = llm_errors.refusal(response, dialect=dialect, service=service, secrets=secrets)
    if any(dialect.learn(status, text, {field: None}) for field in INSTEAD):
        failure.details[SHOULD_RETRY] = True  # a live call then learns what the server takes instead
    return failure
