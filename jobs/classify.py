"""
Decides whether a failed attempt is retried, or given up with a remedy for the operator.

Pure, except that tracebacks quote source files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from jobs.handlers.errors import ANSWER_BLOCKED, SCHEMA_MISMATCH, SHOULD_RETRY, Outcome, ProviderError, words_of
from jobs.handlers.fallback import CONTEXT_TOO_LONG, NO_QUOTA
from jobs.handlers.refusals import parse_refusal
from jobs.handlers.registry import UnknownKind
from jobs.tracebacks import traceback_of
from queueops.core.outbound.client import OutboundResponse
from queueops.core.sealing import defused
from queueops.core.values.retry_after import MAY_SPEAK_OF_A_QUOTA
from ratelimits.feedback import PushBack

MAX_MESSAGE = 2000
MAX_CODE = 64
MAX_STATUS = 1000
MAX_STATED_DELAY_SECONDS = 7 * 24 * 3600

REMEDIES: dict[int, str] = {
    429: "A per-minute quota was exceeded. It backs off by itself; lower concurrency, batch more, or raise the quota.",
    403: "Permission or scope is missing. Check the credential and its scopes.",
    404: "The resource is missing. Check the identifiers.",
    400: "The request is malformed. Check the request and its field mask.",
    401: "The provider does not accept the credential. Check or renew it.",
    402: "The provider wants to be paid. Check the account's billing.",
    408: "The provider took too long. If it goes on, check its status page and lower concurrency.",
}
OUTAGE_REMEDY = "The provider failed. Check its status page; requeue once it works again."
OUTCOME_UNKNOWN = "outcome_unknown"
POISON = "poison"
# Remedies for messages to receivers: the HTTP status is from a receiver's own server, so REMEDIES do not apply.
OF_RECEIVERS = {
    "webhook_refused": (
        "The receiver did not accept the message in three days. Have its server mended, then send again what failed: "
        "on the webhook's page, or the alert route's."
    ),
    "webhook_gone": (
        "The receiver answered 410 and was switched off. Give its new address or leave it off; then send again."
    ),
    "receiver_is_off": (
        "Its receiver was switched off while the message was under way. Switch it on, then send again; or discard it."
    ),
    "receiver_paused": (
        "Its receiver is paused, for it accepted nothing for three days. Have its server mended, then send again."
    ),
}
REMEDIES_BY_CODE: dict[str, str] = {
    "timeout": (
        "The call passed its time limit, or one of a library; the message says which. Make the request smaller or "
        "allow more time."
    ),
    OUTCOME_UNKNOWN: (
        "The call began and nobody saw its end, and repeating it may double its effect. Look at the provider whether "
        "it was carried out: discard if so, requeue if not."
    ),
    POISON: "It brought down its process three times. Look at the payload and the handler before requeueing it.",
    "expired": "It waited longer than its producer allowed. Requeue it if it is still wanted.",
    "unknown_kind": "No worker knows this kind. Deploy the handler, then requeue.",
    "invalid_payload": "The payload no longer fits the handler's schema. Edit it and requeue.",
    "handler_error": "The handler has a bug: its attempts' traceback says where. Fix it, then requeue.",
    "task_error": "The task raised an exception: its traceback is with the attempts. Fix the cause, then requeue.",
    SCHEMA_MISMATCH: (
        "No answer of the model fitted the schema; the message says where. Loosen it, or say more in the prompt, "
        "or take another model; then requeue."
    ),
    ANSWER_BLOCKED: "The model refuses this prompt. Say it in another way, or take another model; then requeue.",
    "no_vector": "The model makes no vector of this text. Change it, or take another model; then requeue.",
    "answer_cut": "The answer needs more output tokens than it may have. Raise max_output_tokens, then requeue.",
    "result_not_json": "The handler returned something that cannot be stored as JSON: a bug. The call was made.",
    "result_too_large": (
        "The handler returned more than QUEUEOPS_RESULT_STORE_MAX_MB. The call was made. Have it return less, or raise "
        "that; then requeue if the call may be made again."
    ),
    "result_store_failed": (
        "The result store did not take the result, and the database keeps none so large. The call was made. See that "
        "the store works (manage.py doctor); then requeue if the call may be made again."
    ),
    "result_not_stored": "The database refused the handler's result: a bug. The call was made.",
    "unreadable_encoding": (
        "The provider compressed its answer in a way that was not asked for, and nobody could read it; the call was "
        "made. Have it, or the proxy before it, send gzip or none; then requeue if the call may be made again."
    ),
    "budget_exhausted": (
        "A budget that rejects had no room for the most that it can cost. Raise it or wait for its next period, "
        "then requeue."
    ),
    "cost_unknown": (
        "A budget that rejects cannot count it, for nobody knows the most that it can cost. Let its handler say so "
        "with `most`, or leave out what has no count; then requeue."
    ),
    "limit_rejected": (
        "A limit can never admit it: its cost is above the cap, or the cap is 0. Split the request or raise the cap, "
        "then requeue."
    ),
    "context_too_long": (
        "The input is too long for the model. Split it, or name a model with room for it in the payload's fallback."
    ),
    NO_QUOTA: (
        "The provider's quota for this model is 0, and no wait helps. Take another model, or have the account's plan "
        "changed at the provider; then requeue."
    ),
    **OF_RECEIVERS,
    "value_not_taken": (
        "A value that it takes from another job's result is not there, or does not fit. Requeue that job, then this "
        "one; or give the value in the payload, and requeue."
    ),
    "project_refused": "Its task belongs to another project. Submit it there; then discard this one.",
    "target_refused": "The target address may not be called. Check the URL.",
}
# Matches, in JSON as json.dumps writes it, an escaped NUL or half of a surrogate pair. `fine` matches first: an escaped
# backslash or a complete pair, which must be kept.
UNSTORABLE_ESCAPE = re.compile(
    r"(?P<fine>\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u0000|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
# Too slow; too early: the call might have been a replay (RFC 8470, 5.2); Azure's "Retry With".
_ASKS_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, 449})
UNANSWERED = frozenset({"timeout", "connection_broken"})
# Codes that say more than the status beside them, whose remedy could even repeat the effect of an unknown outcome.
_SAY_MORE = frozenset(
    {OUTCOME_UNKNOWN, CONTEXT_TOO_LONG, NO_QUOTA, ANSWER_BLOCKED, SCHEMA_MISMATCH, "no_vector", *OF_RECEIVERS}
)
DEFAULT_REMEDY = "Look at the error and the payload; edit and requeue, or discard."


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as stored. `traceback` is empty unless the handler or the task has a bug."""

    code: str
    error_class: str
    message: str
    outcome: Outcome = "unknown"
    status: int | None = None
    retry_after: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    push_back: PushBack | None = None
    traceback: str = ""
    repeat: bool | None = None

    @property
    def remedy(self) -> str:
        if self.code in _SAY_MORE:
            return REMEDIES_BY_CODE[self.code]
        if self.status in REMEDIES:
            return REMEDIES[self.status]
        if _is_server_error(self.status):
            return OUTAGE_REMEDY
        return REMEDIES_BY_CODE.get(self.code, DEFAULT_REMEDY)


def failure_of(error: BaseException, secrets: Sequence[str] = ()) -> Failure:
    """
    Describe what a handler raised.

    Args:
        secrets: Texts that the traceback must not show, besides the secrets that masking.py finds by itself.
    """
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, ProviderError):
        raised = error.__cause__ if "exception_class" in error.details else None  # raised by a @task function
        return Failure(
            code=clean(error.code)[:MAX_CODE],
            error_class=str(error.details.get("exception_class", name))[:200],
            message=clean(error.message),
            outcome=error.outcome,
            status=error.status if error.status is None or 0 <= error.status < MAX_STATUS else None,
            retry_after=_usable_delay(error.retry_after),
            details=_plain(error.details),
            push_back=error.push_back,
            repeat=error.repeat,
            traceback=traceback_of(raised, secrets) if raised else "",
        )
    if isinstance(error, UnknownKind):
        return Failure("unknown_kind", name, clean(error.message), outcome="not_sent")
    message = clean(words_of(error))
    # requests, httpx and libraries that use them raise errors with a `response`.
    response = getattr(error, "response", None)
    if getattr(response, "status_code", None) == HTTPStatus.TOO_MANY_REQUESTS:
        headers = getattr(response, "headers", None)
        found = parse_refusal(429, headers if isinstance(headers, Mapping) else {}, b"")
        return Failure("http_429", name, message, outcome="answered", status=429, push_back=found)
    # A library's own time limit, such as a socket's: no answer came, but the job's time limit did not pass.
    code = "timeout" if isinstance(error, TimeoutError) else "handler_error"
    return Failure(code, name, message, traceback=traceback_of(error, secrets))


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    """Return details as JSON has them: an error's own code made them, and the executor must be able to write them."""
    try:
        # The constants NaN and Infinity become texts: PostgreSQL would refuse the whole outcome.
        plain: dict[str, Any] = json.loads(json.dumps(details, default=str), parse_constant=str)
    except Exception as fault:  # noqa: BLE001 - `str` runs the handler's code
        return {"details_left_out": f"they are not JSON: {type(fault).__qualname__}"}
    return plain


def with_push_back(failure: Failure, refusal: OutboundResponse | None) -> Failure:
    """
    Add the quota that a refusal concerns, if the handler did not name the quota.

    A 429 that says that the account's credit is used up concerns no quota and stays an ordinary failure. A failure
    whose handler has said whether to repeat the call also stays an ordinary failure.

    Args:
        refusal: The last answer to the handler's calls that may concern a quota; None: there is none, for example
            because the handler called without QueueOps's client.
    """
    if failure.status not in MAY_SPEAK_OF_A_QUOTA or failure.push_back is not None or failure.repeat is not None:
        return failure
    if refusal is not None and refusal.status == failure.status:
        found = parse_refusal(refusal.status, refusal.headers, refusal.body, refusal.host)
    else:
        found = PushBack() if failure.status == HTTPStatus.TOO_MANY_REQUESTS else None
    if found is not None and found.retry_after is None:
        found = replace(found, retry_after=failure.retry_after)
    return replace(failure, push_back=found)


def is_retryable(failure: Failure, *, repeatable: bool) -> bool:
    """
    Whether another attempt may help and cannot do harm.

    Args:
        repeatable: Whether the work is idempotent, or the effect key is sent to the provider.
    """
    if failure.repeat is not None:
        return failure.repeat and repeatable
    if failure.outcome == "refused":
        return False
    if failure.outcome == "not_sent" or failure.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    if failure.outcome == "answered":
        told = failure.details.get(SHOULD_RETRY)
        if isinstance(told, bool):
            return repeatable and told
        return repeatable and (failure.status in _ASKS_AGAIN or _is_server_error(failure.status))
    return repeatable and failure.code not in {"invalid_payload", "result_not_json"}


def is_outage(failure: Failure) -> bool:
    """Whether the service failed, not the request: no connection, a broken connection, no answer, or a 5xx."""
    return (
        (failure.outcome == "not_sent" and failure.code != "unknown_kind")
        or (failure.outcome == "unknown" and failure.code in UNANSWERED)
        or _is_server_error(failure.status)
    )


def fingerprint(kind: str, failure: Failure) -> str:
    """
    Return a digest of a failure's kind, code, class and message, which is equal for failures with one cause.

    Numbers, hexadecimal ids and quoted text are taken out of the message.
    """
    message = re.sub(r"\"[^\"]*\"|'[^']*'|\b[0-9a-f]{8}[0-9a-f-]*\b|\d+", "#", failure.message.lower())
    text = f"{kind}\n{failure.code}\n{failure.error_class}\n{message}"
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def clean_json(text: str) -> str:
    """Return JSON text that jsonb accepts: without NUL and without half of a surrogate pair."""
    text = defused(text)
    return UNSTORABLE_ESCAPE.sub(lambda found: found["fine"] or r"\ufffd", text) if r"\u" in text else text


def _usable_delay(seconds: float | None) -> float | None:
    """Return the seconds that a provider asked us to wait, at most a week; None if the number is no delay."""
    if seconds is None or not seconds >= 0:
        return None
    return min(seconds, MAX_STATED_DELAY_SECONDS)


def _is_server_error(status: int | None) -> bool:
    return status is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR


def clean(message: str) -> str:
    """Return a message that PostgreSQL's text accepts: without NUL or lone surrogates, cut to MAX_MESSAGE."""
    return defused(message[:MAX_MESSAGE]).replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
