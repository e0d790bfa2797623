"""`llm.generate`: one question to a language model, or one document in parts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from jobs.handlers.errors import ProviderError, unanswered
from jobs.handlers.http.answers import secrets_in, storable
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.http.request import shared_client
from jobs.handlers.off_loop import off_loop
from jobs.handlers.registry import Continue, Done, RunningJob, handler
from jobs.states import CallType
from queueops.core.outbound.client import OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import OutboundRefused
from queueops.tenancy.server_settings import SettingPlace, note

from . import errors as llm_errors
from .access import key_of, unusable
from .batches.form import batch_form
from .combine import JOINT, Combine, calls_of, combining, for_part
from .dialect import Dialect, Generation, ModelRequest
from .fitting import with_data
from .payload import DEFAULT_OUTPUT_TOKENS, LlmGenerate
from .providers import DIALECTS
from .reading import AnswerReader

MAX_LLM_ANSWER_BYTES = 20_000_000
ANSWERS = frozenset({HTTPStatus.OK, HTTPStatus.CREATED})  # some servers create an answer

# 100 is for the end: a stream's length is only guessed.
_ALMOST = 99


@handler(
    kind="llm.generate",
    service=lambda payload: payload.service_name,
    call_type=CallType.WRITE,
    payload=LlmGenerate,
    idempotent=True,  # asking again costs tokens and changes nothing
    timeout=timedelta(seconds=600),
    cost=LlmGenerate.cost,
    most=LlmGenerate.most,
    credential=lambda payload: payload.credential,
    model=lambda payload: payload.model,
    batch=batch_form(DIALECTS),
    fallback=LlmGenerate.ways,
)
async def generate(job: RunningJob[LlmGenerate]) -> Done | Continue:
    """Ask a language model: Gemini, Claude, or any server that speaks OpenAI's chat completions."""
    payload, dialect = job.payload, DIALECTS[job.payload.provider]
    finished = _finished_parts(job)
    parts, total = payload.parts, calls_of(payload)
    is_last = len(finished) == len(parts)
    asked = combining(payload, [part["text"] for part in finished]) if is_last else for_part(payload)
    part = asked.prompt if is_last else parts[len(finished)]
    try:
        answer, secrets = await _ask(job, asked, dialect, part, done=len(finished), total=total)
    except _Learned as learned:
        return Continue(job.partial or {"parts": []}, f"its server takes {learned}: asked again", cost=0)
    result, cost, usage = storable(answer.result(), secrets), dialect.cost(answer), answer.used()
    if is_last or (total == 1 and payload.combine is None):
        fitting = await off_loop(with_data, asked, result, dialect, answer, size=len(result["text"]))
        if is_last:
            fitting = {**fitting, **_summed([*finished, result]), "parts": [_without_text(one) for one in finished]}
        known = None if is_last else answer.usage.get("input_tokens")
        return Done(_routed(job, fitting), cost=cost, known_cost=known, usage=usage)
    finished = [*finished, result]
    if len(finished) < total:
        message = f"part {len(finished)} of {len(parts)} is done"
        job.progress(100 * len(finished) // total, message)
        return Continue({"parts": finished}, message, cost=cost, usage=usage)
    return Done(_routed(job, _joined(finished, payload.combine)), cost=cost, usage=usage)


def _routed(job: RunningJob[LlmGenerate], result: dict[str, Any]) -> dict[str, Any]:
    """With the way it went, where that is not the first."""
    if not job.fallback_step:
        return result
    payload = job.payload
    named = {"provider": payload.provider, "service": payload.service_name, "model": payload.model}
    return {**result, "route": {**named, "reason": job.fallback_reason, "steps": job.fallback_step}}


async def _ask(
    job: RunningJob[LlmGenerate], asked: LlmGenerate, dialect: Dialect, part: str | None, *, done: int, total: int
) -> tuple[Generation, tuple[str, ...]]:
    request, service = _request(job, asked, dialect, part), job.payload.service_name
    secrets = secrets_in(request.headers)
    reader = AnswerReader(dialect, service=service, secrets=secrets)

    def take(piece: bytes) -> None:
        reader.take(piece)
        _report(job, reader.answer, done=done, total=total)

    try:
        response = await shared_client().send(
            "POST",
            request.url,
            policy=outbound_policy(),
            headers={**request.headers, "Content-Type": "application/json"},
            body=json.dumps(request.body, separators=(",", ":")).encode(),
            timeout_seconds=job.payload.timeout_seconds,
            max_response_bytes=MAX_LLM_ANSWER_BYTES,
            on_piece=take if job.payload.stream else None,
            is_complete=(lambda: reader.is_complete) if job.payload.stream else None,
        )
    except (OutboundRefused, OutboundFailed) as error:
        if reader.has_ended:  # all of the answer is there; only its usage may be missing
            return reader.answer, secrets
        raise unanswered(error) from error
    if response.status not in ANSWERS:
        refusal = llm_errors.refusal(response, dialect=dialect, service=service, secrets=secrets)
        _learn(job, dialect, request.body, response, said=refusal.message)
        raise refusal
    if response.is_truncated:
        raise llm_errors.malformed(service, f"the answer has more than {MAX_LLM_ANSWER_BYTES:,} bytes")
    if job.payload.stream:
        reader.end(response.body)
    else:
        await off_loop(reader.take_whole, response.body, size=len(response.body))
    return reader.answer, secrets


class _Learned(Exception):
    """A server refuses what others like it take: what it takes is known now."""


def _learn(
    job: RunningJob[LlmGenerate], dialect: Dialect, sent: dict[str, Any], response: OutboundResponse, *, said: str
) -> None:
    """
    Raises:
        _Learned: The refusal says what the server takes; the same field is not sent to it again.
    """
    credential = job.credential
    takes = dialect.learn(response.status, response.body, sent)
    if takes and credential is not None and takes not in credential.takes(job.payload.model):
        note(SettingPlace(credential.name, credential.base_url, job.payload.model), takes, said)
        raise _Learned(takes)


def _request(job: RunningJob[LlmGenerate], asked: LlmGenerate, dialect: Dialect, part: str | None) -> ModelRequest:
    """Compose the call; raises ProviderError where the credential does not fit."""
    credential = job.credential
    if credential is None:
        raise unusable(f"There is no credential {job.payload.credential!r}.")
    key = key_of(job.payload.service_name, credential)
    request = dialect.compose(asked, part, credential.base_url, key)
    return replace(request, body=dialect.adapt(request.body, credential.takes(job.payload.model)))


def _report(job: RunningJob[LlmGenerate], answer: Generation, *, done: int, total: int) -> None:
    tokens, expected = answer.tokens_so_far, job.payload.max_output_tokens or DEFAULT_OUTPUT_TOKENS
    percent = min(_ALMOST, (done + min(1.0, tokens / expected)) * 100 / total)
    parts = len(job.payload.parts)
    part = "" if total == 1 else "all parts: " if done == parts else f"part {done + 1} of {parts}: "
    job.progress(int(percent), f"{part}{tokens:,} tokens")


def _finished_parts(job: RunningJob[LlmGenerate]) -> list[dict[str, Any]]:
    if job.partial is None:
        return []
    finished = job.partial.get("parts") if isinstance(job.partial, dict) else None
    if not isinstance(finished, list) or len(finished) >= calls_of(job.payload):
        message = "The answers to earlier parts could not be kept: they are too large together."
        raise ProviderError(None, message, code="partial_lost", outcome="refused")
    return finished


def _joined(parts: list[dict[str, Any]], combine: Combine | None) -> dict[str, Any]:
    texts = [part["text"] for part in parts]
    return {
        "text": combine.joined(texts) if combine else JOINT.join(texts),
        **_summed(parts),
        "model": parts[-1]["model"],
        "parts": [_without_text(part) for part in parts],
    }


def _summed(calls: list[dict[str, Any]]) -> dict[str, Any]:
    usages = [call["usage"] for call in calls if call["usage"]]
    names = dict.fromkeys(name for usage in usages for name in usage)
    return {
        "complete": all(call["complete"] for call in calls),
        "usage": {name: sum(usage.get(name, 0) for usage in usages) for name in names} or None,
    }


def _without_text(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "text"}
