"""`llm.generate`: one question to a language model, or one document in parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.requests.combine import JOINT, Combine, calls_of, combining, for_part
from jobs.handlers.llm.requests.fitting import with_data
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.llm.tokens import DEFAULT_OUTPUT_TOKENS
from jobs.handlers.off_loop import off_loop
from jobs.handlers.registry import Continue, Done, RunningJob, handler

from . import errors as llm_errors
from .access import key_of
from .asking import ASKS_A_MODEL, Learned, ask, credential_of, routed
from .batches.form import batch_form
from .dialect import Dialect, Generation, ModelRequest
from .providers import DIALECTS

# The most percent that is reported before the end: a stream's length is only guessed.
_ALMOST = 99


@handler(
    kind="llm.generate",
    payload=LlmGenerate,
    cost=LlmGenerate.cost,
    most=LlmGenerate.most,
    shown_first=("prompt", "system", "max_output_tokens", "temperature", "schema"),
    batch=batch_form(DIALECTS),
    fallback=LlmGenerate.ways,
    **ASKS_A_MODEL,
)
async def generate(job: RunningJob[LlmGenerate]) -> Done | Continue:
    """Ask a language model: Gemini, Claude, or any server that speaks OpenAI's chat completions."""
    payload, dialect = job.payload, DIALECTS[job.payload.provider]
    finished = _finished_parts(job)
    parts, total = payload.parts, calls_of(payload)
    is_last = len(finished) == len(parts)
    asked = combining(payload, [part["text"] for part in finished]) if is_last else for_part(payload)
    request = _request(job, asked, dialect, asked.prompt if is_last else parts[len(finished)])
    try:
        report = partial(_report, job, len(finished), total)
        reader, secrets = await ask(
            job, dialect, request, seconds=payload.timeout_seconds, streams=payload.stream, report=report
        )
    except Learned as learned:
        return Continue(job.partial or {"parts": []}, f"its server takes {learned}: asked again", cost=0)
    answer = reader.answer
    cost, usage = dialect.cost(answer), answer.used()
    result = llm_errors.stored(answer.result(), secrets, service=payload.service_name, used=(cost, usage))
    if is_last or (total == 1 and payload.combine is None):
        fitting = await off_loop(with_data, asked, result, dialect, answer, size=len(result["text"]))
        if is_last:
            fitting = {**fitting, **_summed([*finished, result]), "parts": [_without_text(one) for one in finished]}
        known = None if is_last else answer.counts.get("input_tokens")
        return Done(routed(job, fitting), cost=cost, known_cost=known, usage=usage)
    finished = [*finished, result]
    if len(finished) < total:
        message = f"part {len(finished)} of {len(parts)} is done"
        job.progress(100 * len(finished) // total, message)
        return Continue({"parts": finished}, message, cost=cost, usage=usage)
    return Done(routed(job, _joined(finished, payload.combine)), cost=cost, usage=usage)


def _request(job: RunningJob[LlmGenerate], asked: LlmGenerate, dialect: Dialect, part: str | None) -> ModelRequest:
    """Compose the call; raises ProviderError if the credential does not fit."""
    credential = credential_of(job)
    key = key_of(job.payload.service_name, credential)
    request = dialect.compose(asked, part, credential.base_url, key)
    return replace(request, body=dialect.adapt(request.body, credential.takes(job.payload.model)))


def _report(job: RunningJob[LlmGenerate], done: int, total: int, answer: Generation) -> None:
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
