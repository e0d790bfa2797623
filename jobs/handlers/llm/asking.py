"""Makes one call to a language model's provider, reads its answer, and learns from a refusal what the server takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, TypeVar

from jobs.handlers.errors import unanswered
from jobs.handlers.http.answers import secrets_in
from jobs.handlers.http.connections import shared_client
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.llm.requests.payload import ModelPayload
from jobs.handlers.off_loop import off_loop
from jobs.handlers.registry import RunningJob
from jobs.states import CallType
from queueops.core.outbound.client import OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import OutboundRefused
from queueops.tenancy.credential_pools.server_settings import SettingPlace, note
from queueops.tenancy.secrets.credentials import OpenCredential

from . import errors as llm_errors
from .access import unusable
from .dialect import Dialect, Generation, ModelRequest
from .reading import AnswerReader

MAX_LLM_ANSWER_BYTES = 20_000_000
# Some servers create an answer; Portkey says with a 246 that a guardrail did not like it.
ANSWERS = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, 246})


# The options of every kind that asks a language model.
ASKS_A_MODEL: dict[str, Any] = {
    "service": lambda payload: payload.service_name,
    "call_type": CallType.WRITE,
    "idempotent": True,  # asking again costs tokens and changes nothing
    "timeout": timedelta(seconds=600),
    "credential": lambda payload: payload.credential,
    "model": lambda payload: payload.model,
}

P = TypeVar("P", bound=ModelPayload)


class Learned(Exception):
    """A server refused a field, and said which field it takes instead. That is stored, and the call is repeated."""


def credential_of(job: RunningJob[P]) -> OpenCredential:
    """
    Raises:
        ProviderError: There is no credential of this name.
    """
    if job.credential is None:
        raise unusable(f"There is no credential {job.payload.credential!r}.")
    return job.credential


async def ask(
    job: RunningJob[P],
    dialect: Dialect,
    request: ModelRequest,
    *,
    seconds: float,
    streams: bool = False,
    report: Callable[[Generation], None] = lambda answer: None,
) -> tuple[AnswerReader, tuple[str, ...]]:
    """
    Make the call and read its answer.

    Args:
        seconds: The most time for the whole call.
        streams: The answer comes in pieces.
        report: Called with the answer so far, whenever a piece of a stream comes in.

    Returns:
        The reader with the answer, and the secrets of the request, which no result may hold.

    Raises:
        ProviderError: No answer came, or a refusal.
        Learned: A refusal says what the server takes.
    """
    service, secrets = job.payload.service_name, secrets_in(request.headers)
    reader = AnswerReader(dialect, service=service, secrets=secrets)

    def take(piece: bytes) -> None:
        reader.take(piece)
        report(reader.answer)

    try:
        response = await shared_client().send(
            "POST",
            request.url,
            policy=outbound_policy(),
            headers={**request.headers, "Content-Type": "application/json"},
            body=request.content,
            timeout_seconds=seconds,
            max_response_bytes=MAX_LLM_ANSWER_BYTES,
            on_piece=take if streams else None,
            is_complete=(lambda: reader.is_complete) if streams else None,
        )
    except (OutboundRefused, OutboundFailed) as error:
        if reader.has_ended:  # all of the answer is there; only its usage may be missing
            return reader, secrets
        raise unanswered(error) from error
    if response.status not in ANSWERS:
        refusal = llm_errors.refusal(response, dialect=dialect, service=service, secrets=secrets)
        _learn(job, dialect, request.body, response, said=refusal.message)
        raise refusal
    if response.is_truncated:
        raise llm_errors.malformed(service, f"the answer has more than {MAX_LLM_ANSWER_BYTES:,} bytes")
    if streams:
        reader.end(response.body)
    else:
        await off_loop(reader.take_whole, response.body, size=len(response.body))
    return reader, secrets


def _learn(
    job: RunningJob[P], dialect: Dialect, sent: Mapping[str, Any], response: OutboundResponse, *, said: str
) -> None:
    """
    Raises:
        Learned: The refusal says what the server takes; the refused field is not sent to it again.
    """
    credential = job.credential
    takes = dialect.learn(response.status, response.body, sent)
    if takes and credential is not None and takes not in credential.takes(job.payload.model):
        note(SettingPlace(credential.name, credential.base_url, job.payload.model), takes, said)
        raise Learned(takes)


def routed(job: RunningJob[P], result: dict[str, Any]) -> dict[str, Any]:
    """Return the result, with the fallback that the job used, if it used one."""
    if not job.fallback_step:
        return result
    payload = job.payload
    named = {"provider": payload.provider, "service": payload.service_name, "model": payload.model}
    return {**result, "route": {**named, "reason": job.fallback_reason, "steps": job.fallback_step}}
