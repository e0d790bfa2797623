"""The endpoints of `llm.call`: the address of each, what its body needs, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from jobs.handlers.llm import anthropic, gemini, openai
from jobs.handlers.llm.dialect import Dialect, Generation

Address = Callable[[str, str, str], tuple[str, dict[str, str]]]

MAX_INPUTS = 2_048  # inputs in one of OpenAI's embeddings calls; source: docs/reference/wire-facts.md
MAX_GEMINI_INPUTS = 100

_RESPONSE_COUNTS = {"input_tokens": "input_tokens", "output_tokens": "output_tokens", "total_tokens": "total_tokens"}
_INPUT_COUNTS = {"prompt_tokens": "input_tokens", "total_tokens": "total_tokens"}
_GEMINI_COUNTS = {"promptTokenCount": "input_tokens", "totalTokenCount": "total_tokens"}
_ENDS_OF_A_RESPONSE = frozenset({"response.completed", "response.incomplete", "response.failed"})
_CALLED = {"function_call": "arguments", "custom_tool_call": "input"}
_PIECES: Mapping[Any, Callable[[Generation, Any], None]] = {
    "response.output_text.delta": Generation.add_text,
    "response.refusal.delta": Generation.refuse,
}


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """
    Attributes:
        dialect: How its answers and refusals are read.
        address: (base_url, api_key, model) -> its URL, and the headers with the key.
        needs: The members that a body must have, and what each must be.
        most_output: The paths at which a body may state its maximum of output tokens.
        answers: The path at which a body may state how many answers it wants.
        writes: Whether its answers are text, whose tokens count as output.
        streams: Whether its answers may come in pieces.
        stream_address: The address for streaming, if it differs; None: `address`.
        stream_fields: The members that a body has for streaming.
        batch: The name of its batch API; empty: it has none here.
    """

    dialect: Dialect
    address: Address
    needs: Mapping[str, Callable[[Any], str]]
    most_output: tuple[tuple[str, ...], ...] = ()
    answers: tuple[str, ...] = ()
    writes: bool = True
    streams: bool = True
    stream_address: Address | None = None
    stream_fields: Mapping[str, Any] = field(default_factory=lambda: {"stream": True})
    batch: str = ""


def _list(value: Any) -> str:
    return "" if isinstance(value, list) and value else "must be a list that is not empty"


def _text_or_list(value: Any) -> str:
    return "" if isinstance(value, str | list) and value else "must be a text, or a list, that is not empty"


def _inputs(value: Any) -> str:
    if _text_or_list(value):
        return _text_or_list(value)
    if isinstance(value, list) and len(value) > MAX_INPUTS and not all(type(one) is int for one in value):
        return f"has {len(value):,} entries; the provider takes {MAX_INPUTS:,}"
    return ""


def _whole(value: Any) -> str:
    return "" if type(value) is int and value > 0 else "must be a whole number from 1"


def _embed_requests(value: Any) -> str:
    if _list(value):
        return _list(value)
    if len(value) > MAX_GEMINI_INPUTS:
        return f"has {len(value):,} entries; the provider takes {MAX_GEMINI_INPUTS}"
    fits = all(isinstance(one, dict) and isinstance(one.get("content"), dict) for one in value)
    return "" if fits else 'must be objects with "content"'


def absorb_response(answer: Generation, event: dict[str, Any]) -> None:
    """Take the texts and calls of a whole response of OpenAI's, or of an event of its stream; leave out the rest."""
    kind = event.get("type")
    if kind in _PIECES:
        _PIECES[kind](answer, event.get("delta"))
    elif kind == "response.output_item.done":
        _add_message(answer, event.get("item"), unless_there=True)
        _add_called(answer, event.get("output_index"), event.get("item"))
    told = event.get("response") if kind in _ENDS_OF_A_RESPONSE else event
    output = told.get("output") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not (kind in _ENDS_OF_A_RESPONSE or isinstance(output, list)):
        return
    has_text = bool(answer.pieces)  # the stream's events have brought the text already
    for place, item in enumerate(output if isinstance(output, list) else ()):  # gateways leave it empty, or out
        if not has_text:
            _add_message(answer, item)
        _add_called(answer, place, item)
    details = told.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    # Azure sends the error in the next event.
    answer.failed |= told.get("status") in ("failed", "cancelled")
    ended = None if answer.failed else reason or told.get("status")
    answer.note(finish_reason=ended, model=told.get("model"), answer_id=told.get("id"), tier=told.get("service_tier"))
    usage = told.get("usage")
    answer.count(usage, _RESPONSE_COUNTS)
    if isinstance(usage, dict):
        answer.count(usage.get("input_tokens_details"), openai.OF_INPUT)
        openai.count_thoughts(answer, usage.get("output_tokens_details"))


def _add_message(answer: Generation, item: Any, *, unless_there: bool = False) -> None:
    """Add a message's texts, or the model's refusal; `unless_there`: the pieces of a stream may have brought them."""
    parts = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
    told = [part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)]
    texts = [part.get("text") if part.get("type") == "output_text" else part.get("refusal") for part in told]
    whole = "".join(text for text in texts if isinstance(text, str))
    if whole and not (unless_there and answer.text.endswith(whole)):
        is_refusal = any(part.get("type") == "refusal" for part in told)
        (answer.refuse if is_refusal else answer.add_text)(whole)


def _add_called(answer: Generation, place: Any, item: Any) -> None:
    """Add a call of a tool, which a stream brings twice: as an item that is done, and in the whole at its end."""
    if not isinstance(item, dict) or item.get("type") not in _CALLED:
        return
    call_id = item.get("call_id")
    key = call_id if isinstance(call_id, str) else place if type(place) is int else None
    if key not in answer.calls:
        answer.add_call(key, name=item.get("name"), call_id=call_id, arguments=item.get(_CALLED[item["type"]]))


def knows_response(event: dict[str, Any]) -> bool:
    kind = event.get("type")
    return event.get("object") == "response" or (isinstance(kind, str) and "." in kind)


def _vectors(name: str, counts: Mapping[str, str], usage: str) -> Callable[[Generation, dict[str, Any]], None]:
    """Read an answer whose list `name` has an entry for each input."""

    def absorb(answer: Generation, event: dict[str, Any]) -> None:
        answer.vectors = event.get(name)
        answer.note(model=event.get("model"), answer_id=event.get("id"))
        answer.count(event.get(usage), counts)
        if answer.usage:
            answer.usage["output_tokens"] = 0

    return absorb


def _has_list(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: isinstance(event.get(name), list)


_OPENAI_VECTORS = replace(
    openai.OPENAI, absorb=_vectors("data", _INPUT_COUNTS, "usage"), knows=_has_list("data"), end_of_stream=None
)

ENDPOINTS: dict[str, dict[str, ModelEndpoint]] = {
    "openai": {
        "/v1/chat/completions": ModelEndpoint(
            openai.OPENAI,
            partial(openai.address, "/chat/completions"),
            {"messages": _list},
            most_output=(("max_completion_tokens",), ("max_tokens",)),
            answers=("n",),
            stream_fields={"stream": True, "stream_options": {"include_usage": True}},
            batch="openai",
        ),
        "/v1/responses": ModelEndpoint(
            replace(openai.OPENAI, absorb=absorb_response, knows=knows_response),
            partial(openai.address, "/responses"),
            {"input": _text_or_list},
            most_output=(("max_output_tokens",),),
            batch="openai-responses",
        ),
        "/v1/embeddings": ModelEndpoint(
            _OPENAI_VECTORS,
            partial(openai.address, "/embeddings"),
            {"input": _inputs},
            writes=False,
            streams=False,
            batch="openai-embed",
        ),
        "/v1/moderations": ModelEndpoint(
            replace(_OPENAI_VECTORS, absorb=_vectors("results", {}, "usage"), knows=_has_list("results")),
            partial(openai.address, "/moderations"),
            {"input": _text_or_list},
            writes=False,
            streams=False,
        ),
    },
    "anthropic": {
        "/v1/messages": ModelEndpoint(
            anthropic.ANTHROPIC,
            lambda base_url, api_key, model: anthropic.address("/v1/messages", base_url, api_key),
            {"messages": _list, "max_tokens": _whole},
            most_output=(("max_tokens",),),
            batch="anthropic",
        )
    },
    "gemini": {
        "generateContent": ModelEndpoint(
            gemini.GEMINI,
            partial(gemini.address, "generateContent"),
            {"contents": _list},
            most_output=(("generationConfig", "maxOutputTokens"), ("generation_config", "max_output_tokens")),
            answers=("generationConfig", "candidateCount"),
            stream_address=partial(gemini.address, "streamGenerateContent?alt=sse"),
            stream_fields={},
            batch="gemini",
        ),
        "batchEmbedContents": ModelEndpoint(
            replace(
                gemini.GEMINI,
                absorb=_vectors("embeddings", _GEMINI_COUNTS, "usageMetadata"),
                knows=_has_list("embeddings"),
            ),
            partial(gemini.address, "batchEmbedContents"),
            {"requests": _embed_requests},
            writes=False,
            streams=False,
        ),
    },
}
"""By provider and name. A payload that names no endpoint uses its provider's first."""


def endpoint_of(provider: str, name: str | None) -> ModelEndpoint | None:
    known = ENDPOINTS.get(provider, {})
    return known.get(name) if name is not None else next(iter(known.values()), None)
