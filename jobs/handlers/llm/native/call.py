"""`llm.call`: one request in a provider's own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

from jobs.handlers.batch_form import BatchForm
from jobs.handlers.llm import errors as llm_errors
from jobs.handlers.llm.access import key_of
from jobs.handlers.llm.asking import ASKS_A_MODEL, Learned, ask, credential_of, routed
from jobs.handlers.llm.batches.form import answer_in, batch_apis, refusal_of
from jobs.handlers.llm.batches.openai import OpenAiBatches
from jobs.handlers.llm.dialect import Generation, ModelRequest
from jobs.handlers.llm.openai import is_azure
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.off_loop import off_loop
from jobs.handlers.registry import Continue, Done, RunningJob, handler
from queueops.core.values.written import Written, member, with_members
from queueops.tenancy.secrets.credentials import OpenCredential

from .payload import LlmCall

BATCH_APIS = {
    **batch_apis(DIALECTS),
    "openai-responses": OpenAiBatches(endpoint="/v1/responses"),
    "openai-embed": OpenAiBatches(endpoint="/v1/embeddings"),
}


def _compose(payload: LlmCall, credential: OpenCredential) -> Mapping[str, Any]:
    """Return the body of the job's line; raises ProviderError if the credential does not fit."""
    key_of(payload.service_name, credential)
    return payload.sent


def _as_written(payload: LlmCall, text: str) -> Mapping[str, Any]:
    """Return the body as its producer wrote it; `text`: the payload's JSON."""
    body = member(text, "body")
    return payload.sent if body is None else Written(payload.sent, with_members(body, payload.ours))


def _read(payload: LlmCall, body: Any, secrets: tuple[str, ...]) -> Done:
    answer = answer_in(payload.target.dialect, payload.service_name, body, secrets)
    return _done(payload, answer, body, secrets)


def _api_of(payload: LlmCall, base_url: str) -> str:
    # Azure's batches are not used, as in llm.generate: batches/form.py has the reason.
    return "" if is_azure(base_url) else payload.target.batch


@handler(
    kind="llm.call",
    payload=LlmCall,
    cost=LlmCall.cost,
    most=LlmCall.most,
    batch=BatchForm(
        apis=BATCH_APIS,
        api_of=_api_of,
        key_of=key_of,
        compose=_compose,
        as_written=_as_written,
        read=_read,
        refuse=lambda payload, status, body, secrets: refusal_of(
            payload.target.dialect, payload.service_name, status, body, secrets=secrets
        ),
    ),
    fallback=LlmCall.ways,
    **ASKS_A_MODEL,
)
async def call(job: RunningJob[LlmCall]) -> Done | Continue:
    """
    Send a request in the provider's own form, as it is written: chat completions, responses, embeddings and
    moderations of OpenAI and compatible servers, Anthropic's messages, Gemini's generateContent and batchEmbedContents.
    """
    payload, endpoint = job.payload, job.payload.target
    credential = credential_of(job)
    address = (endpoint.stream_address if payload.stream else None) or endpoint.address
    url, headers = address(credential.base_url, key_of(payload.service_name, credential), payload.model)
    # For a server that refuses some fields, only fields that QueueOps adds are changed or left out.
    ours = endpoint.dialect.adapt(payload.ours, credential.takes(payload.model))
    body = member(job.payload_text, "body")
    written = None if body is None else with_members(body, ours)
    request = ModelRequest(url, headers, {**payload.body, **ours} if written is None else ours, written)
    try:
        reader, secrets = await ask(
            job,
            endpoint.dialect,
            request,
            seconds=payload.timeout_seconds,
            streams=payload.stream,
            report=partial(_report, job),
        )
    except Learned as learned:
        return Continue(None, f"its server takes {learned}: asked again", cost=0)
    size = sum(map(len, reader.answer.pieces)) + 10_000
    done = await off_loop(_done, payload, reader.answer, reader.whole, secrets, size=size)
    return replace(done, result=routed(job, done.result))


def _report(job: RunningJob[LlmCall], answer: Generation) -> None:
    most = job.payload.cost().units["output_tokens"] or 1
    job.progress(min(99, int(100 * answer.tokens_so_far / most)), f"{answer.tokens_so_far:,} tokens")


def _done(payload: LlmCall, answer: Generation, body: Any, secrets: tuple[str, ...]) -> Done:
    """Return the provider's own answer, and beside it the few fields that every page shows."""
    dialect = payload.target.dialect
    told = answer.result(keeps_media=body is not None)
    if answer.vectors is not None:
        told = {"complete": True, "usage": told["usage"], "model": told["model"]}
    cost, usage = dialect.cost(answer), answer.used()
    result = {"status": HTTPStatus.OK.value, "body": body, **told}
    return Done(
        llm_errors.stored(result, secrets, service=payload.service_name, used=(cost, usage)),
        cost=cost,
        known_cost=answer.counts.get("input_tokens"),
        usage=usage,
    )
