"""The endpoints of OpenAI's API that the sandbox plays: their requests and answers."""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sandbox import clock
from sandbox.knobs.providers import OpenAiKnobs
from sandbox.llm import DIMENSIONS, CannedAnswer, count_tokens, texts, vector_of
from sandbox.openai import answers
from sandbox.openai.errors import openai_error

MAX_INPUTS = 2_048

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlayedEndpoint:
    """
    Attributes:
        asks: The member that a body must have.
        answer: (body, generation, usage) -> an answer as the service gives it.
        max_output: The members that limit an answer's text; empty: the answer has no text.
        schema: (body) -> the schema that the text has to fit, or None.
        events: (body, generation, usage, pieces of the text) -> the events of a stream; None: it does not stream.
    """

    asks: str
    answer: Callable[[dict[str, Any], CannedAnswer, Event | None], Event]
    max_output: tuple[str, ...] = ()
    schema: Callable[[dict[str, Any]], object] = lambda body: None
    events: Callable[[dict[str, Any], CannedAnswer, Event | None, list[str]], Iterator[Event]] | None = None

    def check(self, body: Any) -> dict[str, Any]:
        """
        Return a request that can be answered.

        Raises:
            ApiError: 400, when something is missing.
        """
        if not isinstance(body, dict) or not isinstance(body.get("model"), str):
            raise openai_error(400, "you must provide a model parameter")
        given = body.get(self.asks)
        if not given or not isinstance(given, list if self.asks == "messages" else (str, list)):
            message = f"Missing required parameter: '{self.asks}'."
            raise openai_error(400, message, code="missing_required_parameter", param=self.asks)
        if self.answer is embeddings and isinstance(given, list) and len(given) > MAX_INPUTS:
            message = f"Invalid '{self.asks}': array too long. Expected at most {MAX_INPUTS} items."
            raise openai_error(400, message, code="array_above_max_length", param=self.asks)
        return body

    def prompt_of(self, body: dict[str, Any]) -> str:
        return "".join(_inputs(body.get(self.asks, [])))

    def generation_of(self, body: dict[str, Any], knobs: OpenAiKnobs) -> CannedAnswer:
        prompt = self.prompt_of(body)
        if not self.max_output:
            return CannedAnswer("", count_tokens(prompt, factor=knobs.token_factor), 0, is_cut=False)
        most = next((body[name] for name in self.max_output if body.get(name) is not None), None)
        if most is not None and (not isinstance(most, int) or most < 1):
            message = f"Invalid '{self.max_output[-1]}': integer below minimum value."
            raise openai_error(400, message, code="integer_below_min_value")
        return CannedAnswer.of(prompt, knobs, max_tokens=most, schema=self.schema(body))

    def usage_of(self, generation: CannedAnswer, knobs: OpenAiKnobs) -> Event:
        usage = answers.usage_of(generation, knobs)
        if self.answer is response:
            return {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage.get("prompt_tokens_details", {"cached_tokens": 0}),
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": usage.get("completion_tokens_details", {"reasoning_tokens": 0}),
                "total_tokens": usage["total_tokens"],
            }
        return usage if self.max_output else {name: usage[name] for name in ("prompt_tokens", "total_tokens")}


def _inputs(given: object) -> Iterator[str]:
    """Yield the texts of messages or of an input; an input may also be one text, or a list of texts."""
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, str):
            yield one
        else:
            yield from texts(one)


def chat(body: dict[str, Any], generation: CannedAnswer, usage: Event | None) -> Event:
    return answers.completion(generation, body["model"], usage)


def _chat_schema(body: dict[str, Any]) -> object:
    form = body.get("response_format")
    return (form.get("json_schema") or {}).get("schema") if isinstance(form, dict) else None


def _chat_events(
    body: dict[str, Any], generation: CannedAnswer, usage: Event | None, parts: list[str]
) -> Iterator[Event]:
    head = {**answers.head_of(body["model"]), "object": "chat.completion.chunk"}
    for part in parts:
        yield {**head, "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answers.reason_of(generation)}]}
    options = body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage") and usage is not None:
        yield {**head, "choices": [], "usage": usage}


def response(body: dict[str, Any], generation: CannedAnswer, usage: Event | None) -> Event:
    text = {"type": "output_text", "text": generation.text, "annotations": [], "logprobs": []}
    message = {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    return {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(clock.now()),
        "status": "incomplete" if generation.is_cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if generation.is_cut else None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": [message],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        **({} if usage is None else {"usage": usage}),
    }


def _response_schema(body: dict[str, Any]) -> object:
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    return form.get("schema") if isinstance(form, dict) and form.get("type") == "json_schema" else None


def _response_events(
    body: dict[str, Any], generation: CannedAnswer, usage: Event | None, parts: list[str]
) -> Iterator[Event]:
    """Yield the events that the service sends: item and part are opened before the text's pieces, and closed after."""
    whole = response(body, generation, usage)
    [item] = whole["output"]
    [text] = item["content"]
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    begun = {"response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    opened = {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}}
    ended = "response.incomplete" if generation.is_cut else "response.completed"
    events: list[tuple[str, Event]] = [
        ("response.created", begun),
        ("response.in_progress", begun),
        ("response.output_item.added", opened),
        ("response.content_part.added", {**at, "part": {**text, "text": ""}}),
        *(("response.output_text.delta", {**at, "delta": part, "logprobs": []}) for part in parts),
        ("response.output_text.done", {**at, "text": generation.text, "logprobs": []}),
        ("response.content_part.done", {**at, "part": text}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        (ended, {"response": whole}),
    ]
    for number, (kind, fields) in enumerate(events):
        yield {"type": kind, "sequence_number": number, **fields}


def embeddings(body: dict[str, Any], generation: CannedAnswer, usage: Event | None) -> Event:
    given, dimensions = body["input"], body.get("dimensions") or DIMENSIONS
    is_one = isinstance(given, str) or all(isinstance(one, int) for one in given)
    vectors = [
        vector_of(one if isinstance(one, str) else json.dumps(one), dimensions)
        for one in ([given] if is_one else given)
    ]
    if body.get("encoding_format") == "base64":
        shown: list[Any] = [base64.b64encode(struct.pack(f"<{dimensions}f", *one)).decode() for one in vectors]
    else:
        shown = vectors
    data = [{"object": "embedding", "index": number, "embedding": one} for number, one in enumerate(shown)]
    return {"object": "list", "data": data, "model": body["model"], **({} if usage is None else {"usage": usage})}


def moderations(body: dict[str, Any], generation: CannedAnswer, usage: Event | None) -> Event:
    given = body["input"]
    names = ("harassment", "hate", "self-harm", "sexual", "violence")
    results = [
        {
            "flagged": "violence" in one,
            "categories": {name: name in one for name in names},
            "category_scores": {name: 0.9 if name in one else 0.01 for name in names},
            "category_applied_input_types": {name: ["text"] for name in names},
        }
        for one in ("".join(_inputs([entry])) for entry in ([given] if isinstance(given, str) else given))
    ]
    return {"id": f"modr-{uuid4().hex}", "model": body["model"], "results": results}


ENDPOINTS = {
    "/v1/chat/completions": PlayedEndpoint(
        "messages", chat, ("max_completion_tokens", "max_tokens"), schema=_chat_schema, events=_chat_events
    ),
    "/v1/responses": PlayedEndpoint(
        "input", response, ("max_output_tokens",), schema=_response_schema, events=_response_events
    ),
    "/v1/embeddings": PlayedEndpoint("input", embeddings),
    "/v1/moderations": PlayedEndpoint("input", moderations),
}
