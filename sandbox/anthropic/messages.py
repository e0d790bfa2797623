"""Messages as they are answered, live and in batches."""

from typing import Any
from uuid import uuid4

from sandbox.anthropic.cache import Prompt
from sandbox.anthropic.errors import anthropic_error
from sandbox.knobs.providers import AnthropicKnobs
from sandbox.llm import CannedAnswer
from sandbox.provider import CallTokens


def check(body: Any) -> dict[str, Any]:
    """
    Return a request that names a model.

    Raises:
        ApiError: 400.
    """
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise anthropic_error(400, "model: Field required")
    return body


def answer_of(body: dict[str, Any], knobs: AnthropicKnobs) -> tuple[CannedAnswer, Prompt]:
    """
    Return the answer to a request, and its prompt.

    Raises:
        ApiError: 400, when something is missing or wrong.
    """
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise anthropic_error(400, "messages: Field required")
    max_tokens = body.get("max_tokens")
    if max_tokens is None:
        raise anthropic_error(400, "max_tokens: Field required")
    if not isinstance(max_tokens, int) or max_tokens < 1:
        raise anthropic_error(400, "max_tokens: Input should be greater than or equal to 1")
    prompt = Prompt.of(body, factor=knobs.token_factor, minimum_tokens=knobs.cache_minimum_tokens)
    form = (body.get("output_config") or {}).get("format") or {}
    return CannedAnswer.of(prompt.text, knobs, max_tokens=max_tokens, schema=form.get("schema")), prompt


def message_of(
    answer: CannedAnswer, *, model: str, tokens: CallTokens | None, tier: str = "standard"
) -> dict[str, Any]:
    """Return a message as the service answers it; without tokens its usage is left out."""
    message = {
        "id": f"msg_{uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": answer.text}],
        "stop_reason": "max_tokens" if answer.is_cut else "end_turn",
        "stop_sequence": None,
    }
    if tokens is None:
        return message
    usage = {
        "input_tokens": tokens.prompt - tokens.cached - tokens.cache_written,
        "cache_creation_input_tokens": tokens.cache_written,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "service_tier": tier,
    }
    return {**message, "usage": usage}
