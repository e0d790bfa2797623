"""Gemini's generateContent and streamGenerateContent."""

from __future__ import annotations

from typing import Any

from jobs.handlers.google.refusals import ACCOUNT_REASONS, parse_google

from .dialect import Dialect, ErrorWords, Generation, ModelRequest, phrases
from .payload import LlmGenerate

BASE_URL = "https://generativelanguage.googleapis.com"

WORDS = ErrorWords(too_long=phrases(r"input token count .*exceeds the maximum"), account_codes=ACCOUNT_REASONS)
_ROLES = {"user": "user", "assistant": "model"}
_FIELDS = frozenset({"candidates", "promptFeedback", "usageMetadata"})
_COUNTS = {
    "promptTokenCount": "input_tokens",
    "candidatesTokenCount": "output_tokens",
    "totalTokenCount": "total_tokens",
    "cachedContentTokenCount": "cached_tokens",
    "thoughtsTokenCount": "thinking_tokens",
}


def compose(payload: LlmGenerate, part: str | None, base_url: str, api_key: str) -> ModelRequest:
    verb = "streamGenerateContent?alt=sse" if payload.stream else "generateContent"
    turns = payload.turns(part)
    said = [turn for turn in turns if turn.role != "system"]
    body: dict[str, Any] = {
        "contents": payload.contents
        or [{"role": _ROLES[turn.role], "parts": [{"text": turn.content}]} for turn in said]
    }
    instructions = [{"text": turn.content} for turn in turns if turn.role == "system"]
    if instructions:
        body["systemInstruction"] = {"parts": instructions}
    config = {"maxOutputTokens": payload.max_output_tokens, "temperature": payload.temperature}
    if given := {name: value for name, value in config.items() if value is not None}:
        body["generationConfig"] = given
    root = (base_url or BASE_URL).rstrip("/")
    return ModelRequest(f"{root}/v1beta/models/{payload.model}:{verb}", {"x-goog-api-key": api_key}, body)


def absorb(answer: Generation, event: dict[str, Any]) -> None:
    """Take the first candidate; thoughts are no part of the text, and a prompt that is blocked has no candidate."""
    candidate = _first(event.get("candidates"))
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    for piece in parts if isinstance(parts, list) else ():
        if isinstance(piece, dict) and piece.get("thought") is not True:
            answer.add_text(piece.get("text"))
    feedback = event.get("promptFeedback")
    blocked = feedback.get("blockReason") if isinstance(feedback, dict) else None
    answer.note(
        finish_reason=candidate.get("finishReason") or blocked,
        model=event.get("modelVersion"),
        answer_id=event.get("responseId"),
    )
    answer.count(event.get("usageMetadata"), _COUNTS)
    if "total_tokens" in answer.usage:
        # Gemini leaves out a count of nothing: where it only thought, or the prompt was blocked.
        answer.usage.setdefault("output_tokens", 0)


def knows(event: dict[str, Any]) -> bool:
    return not event.keys().isdisjoint(_FIELDS)


def cost(answer: Generation) -> int | None:
    """Return the input tokens: output does not count."""
    return answer.usage.get("input_tokens")


def _first(candidates: Any) -> dict[str, Any]:
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    return first if isinstance(first, dict) else {}


GEMINI = Dialect(
    compose=compose, absorb=absorb, knows=knows, cost=cost, push_back=parse_google, words=WORDS, reason_is_last=False
)
