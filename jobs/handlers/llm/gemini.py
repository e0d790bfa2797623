"""Gemini's generateContent and streamGenerateContent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jobs.handlers.google.refusals import ACCOUNT_REASONS, QUOTA_OF_ZERO, parse_google

from .dialect import Dialect, ErrorWords, Generation, ModelRequest, phrases, with_options
from .tokens import TOKENS_PER_OTHER_PART

if TYPE_CHECKING:
    from jobs.handlers.llm.requests.payload import LlmGenerate, Turn

BASE_URL = "https://generativelanguage.googleapis.com"
# The model's name becomes part of a path.
_NAME_IN_A_PATH = re.compile(r"[A-Za-z0-9._@-]+")

WORDS = ErrorWords(
    too_long=phrases(r"input token count .*exceeds the maximum", r"cannot truncate to \d{1,9}, required \d"),
    no_credit=phrases(r"\bprepayment credits are depleted", r"has exceeded its monthly spending cap"),
    no_quota=(QUOTA_OF_ZERO,),
    closed=phrases(r"\byour API key was reported as leaked"),
    account_codes=ACCOUNT_REASONS,
)
_COUNTS_THOUGHTS = re.compile(r"gemini-[12]\b")
_BUDGETS = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}  # as Google maps OpenAI's words
_ROLES = {"user": "user", "assistant": "model"}
# The model wrote something else than the call or the answer that it meant, and another attempt may bring it.
_MISFITS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
_MEDIA = frozenset({"inlineData", "fileData", "executableCode"})
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
        "contents": payload.contents or [{"role": _ROLES[turn.role], "parts": _parts(turn, payload)} for turn in said]
    }
    instructions = [{"text": turn.content} for turn in turns if turn.role == "system"]
    if instructions:
        body["systemInstruction"] = {"parts": instructions}
    config: dict[str, Any] = {
        "maxOutputTokens": payload.max_output_tokens,
        "temperature": payload.temperature,
        "topP": payload.top_p,
        "seed": payload.seed,
        "stopSequences": payload.stop,
        "thinkingConfig": _thinking(payload),
    }
    if payload.answer_schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": payload.answer_schema}
    if given := {name: value for name, value in config.items() if value is not None}:
        body["generationConfig"] = given
    if payload.tools:
        body["tools"] = [{"functionDeclarations": [tool.as_dict("parametersJsonSchema") for tool in payload.tools]}]
    body = with_options(body, payload.options)
    return ModelRequest(*address(verb, base_url, api_key, payload.model), body)


def address(verb: str, base_url: str, api_key: str, model: str) -> tuple[str, dict[str, str]]:
    """Return where a call goes, and its headers; `verb`: the method, such as `generateContent`."""
    root = (base_url or BASE_URL).rstrip("/")
    return f"{root}/v1beta/models/{model}:{verb}", {"x-goog-api-key": api_key}


def _parts(turn: Turn, payload: LlmGenerate) -> list[dict[str, Any]]:
    text = {"text": turn.content}
    if not turn.has_pictures:
        return [text]
    pictures = [
        {"fileData": {"fileUri": one.url, **({"mimeType": one.media_type} if one.media_type else {})}}
        if one.url
        else {"inlineData": {"mimeType": one.media_type, "data": one.base64}}
        for one in payload.pictures or ()
    ]
    return [*pictures, text]


def _thinking(payload: LlmGenerate) -> dict[str, Any] | None:
    """How much the model thinks: tokens for models before 3, a word for others; see docs/reference/wire-facts.md."""
    if payload.reasoning is None:
        return None
    if _COUNTS_THOUGHTS.match(payload.model):
        return {"thinkingBudget": _BUDGETS[payload.reasoning]}
    return {"thinkingLevel": "MINIMAL" if payload.reasoning == "none" else payload.reasoning.upper()}


def absorb(answer: Generation, event: dict[str, Any]) -> None:
    """Take the first candidate; thoughts are no part of the text, and a prompt that is blocked has no candidate."""
    first = _first(event.get("candidates"))
    candidate = first if answer.is_of(first.get("index")) else {}
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    for piece in parts if isinstance(parts, list) else ():
        answer.thought |= isinstance(piece, dict) and piece.get("thought") is True
        if isinstance(piece, dict) and piece.get("thought") is not True:
            answer.add_text(piece.get("text"))
            answer.has_media |= not _MEDIA.isdisjoint(piece)
            if isinstance(call := piece.get("functionCall"), dict):
                # Each function call comes whole, even in a stream.
                arguments = call.get("args") or {}
                answer.add_call(len(answer.calls), name=call.get("name"), call_id=call.get("id"), arguments=arguments)
    answer.failed |= candidate.get("finishReason") in _MISFITS
    feedback = event.get("promptFeedback")
    blocked = feedback.get("blockReason") if isinstance(feedback, dict) else None
    answer.note(
        finish_reason=candidate.get("finishReason") or blocked,
        model=event.get("modelVersion"),
        answer_id=event.get("responseId"),
    )
    used = event.get("usageMetadata")
    answer.count(_with_tools(used), _COUNTS)
    answer.note(tier=used.get("serviceTier") if isinstance(used, dict) else None)
    if "total_tokens" in answer.usage:
        # Gemini leaves out a count of zero: the model only thought, or the prompt was blocked.
        answer.usage.setdefault("output_tokens", 0)
    answer.thought |= answer.usage.get("thinking_tokens", 0) > 0


def _with_tools(usage: Any) -> Any:
    """Return the usage with what Google's own tools brought as input: Gemini counts it beside the prompt."""
    if not isinstance(usage, dict):
        return usage
    prompt, found = usage.get("promptTokenCount"), usage.get("toolUsePromptTokenCount")
    return {**usage, "promptTokenCount": prompt + found} if type(prompt) is type(found) is int else usage


def knows(event: dict[str, Any]) -> bool:
    return not event.keys().isdisjoint(_FIELDS)


def cost(answer: Generation) -> int | None:
    """Return the input tokens: Gemini's limits do not count output."""
    return answer.counts.get("input_tokens")


def _first(candidates: Any) -> dict[str, Any]:
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    return first if isinstance(first, dict) else {}


def refuses_model(model: str) -> str:
    if _NAME_IN_A_PATH.fullmatch(model):
        return ""
    return "the name of a Gemini model has letters, digits, dots, dashes, underscores and @ only"


def models(base_url: str, api_key: str) -> tuple[str, dict[str, str]]:
    return f"{(base_url or BASE_URL).rstrip('/')}/v1beta/models?pageSize=1", {"x-goog-api-key": api_key}


GEMINI = Dialect(
    compose=compose,
    absorb=absorb,
    knows=knows,
    cost=cost,
    push_back=parse_google,
    words=WORDS,
    reason_is_last=False,
    picture_tokens=TOKENS_PER_OTHER_PART,
    counts_output=False,
    takes_contents=True,
    refuses_model=refuses_model,
    models=models,
)
