"""Answers of generateContent, live and in batches."""

from collections.abc import Mapping
from typing import Any

from sandbox.envelopes import google_error
from sandbox.knobs.providers import GeminiKnobs
from sandbox.llm import DIMENSIONS, CannedAnswer, texts, vector_of

MAX_EMBEDDED = 100


def prompt_of(body: dict[str, Any]) -> str:
    return "".join(texts({name: value for name, value in body.items() if name != "generationConfig"}))


def embeddings_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """
    Return the vector of each request.

    Raises:
        ApiError: 400, if there are no requests, or too many.
    """
    asked = body.get("requests")
    if not isinstance(asked, list) or not asked or len(asked) > MAX_EMBEDDED:
        raise google_error(400, f"* BatchEmbedContentsRequest.requests: from 1 to {MAX_EMBEDDED} requests\n")
    return [
        {"values": vector_of("".join(texts(one.get("content"))), one.get("outputDimensionality") or DIMENSIONS)}
        for one in asked
    ]


def generation_of(body: dict[str, Any], knobs: GeminiKnobs) -> CannedAnswer:
    """
    Return the answer to a request.

    Raises:
        ApiError: 400, when something is missing or wrong.
    """
    if not body.get("contents"):
        raise google_error(400, "* GenerateContentRequest.contents: contents is not specified\n")
    config = body.get("generationConfig")
    max_tokens = config.get("maxOutputTokens") if isinstance(config, Mapping) else None
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        raise google_error(400, "max_output_tokens must be positive.")
    schema = config.get("responseJsonSchema") if isinstance(config, Mapping) else None
    return CannedAnswer.of(prompt_of(body), knobs, max_tokens=max_tokens, schema=schema)


def answer(
    model: str, generation: CannedAnswer, text: str, *, answer_id: str, ended: bool = True, usage: bool = False
) -> dict[str, Any]:
    """Return an answer, or the piece of one that holds this text."""
    candidate: dict[str, Any] = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
    if ended:
        candidate["finishReason"] = "MAX_TOKENS" if generation.is_cut else "STOP"
    found: dict[str, Any] = {"candidates": [candidate]}
    if usage:
        found["usageMetadata"] = {
            "promptTokenCount": generation.prompt_tokens,
            "candidatesTokenCount": generation.output_tokens,
            "totalTokenCount": generation.prompt_tokens + generation.output_tokens,
        }
    return {**found, "modelVersion": model, "responseId": answer_id}
