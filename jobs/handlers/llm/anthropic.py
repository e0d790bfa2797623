"""Anthropic's Messages."""

from __future__ import annotations

from typing import Any

from ratelimits.feedback import parse_anthropic

from .dialect import Dialect, Generation, ModelRequest
from .payload import LlmGenerate

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

# Input tokens are told in three parts here; ours are all of them.
_COUNTS = {
    "input_tokens": "uncached_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "cache_creation_input_tokens": "cache_written_tokens",
    "output_tokens": "output_tokens",
}
_COUNTS_AT_FIRST = {theirs: ours for theirs, ours in _COUNTS.items() if ours != "output_tokens"}
_INPUT = ("uncached_tokens", "cached_tokens", "cache_written_tokens")


def compose(payload: LlmGenerate, part: str | None, base_url: str, api_key: str) -> ModelRequest:
    turns = payload.turns(part)
    said = [{"role": turn.role, "content": turn.content} for turn in turns if turn.role != "system"]
    body: dict[str, Any] = {
        "model": payload.model,
        "max_tokens": payload.stated_output,
        "messages": said,
    }
    instructions = "\n\n".join(turn.content for turn in turns if turn.role == "system")
    if instructions:
        block = {"type": "text", "text": instructions, "cache_control": {"type": "ephemeral"}}
        body["system"] = [block] if payload.cache_system else instructions
    if payload.temperature is not None:
        body["temperature"] = payload.temperature
    if payload.stream:
        body["stream"] = True
    root = (base_url or BASE_URL).rstrip("/").removesuffix("/v1")
    return ModelRequest(f"{root}/v1/messages", {"x-api-key": api_key, "anthropic-version": VERSION}, body)


def absorb(answer: Generation, event: dict[str, Any]) -> None:
    """Take a whole message, or what an event of a stream adds to it; what is no text is left out."""
    message = event.get("message") if event.get("type") == "message_start" else event
    if not isinstance(message, dict):
        return
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            answer.add_text(block.get("text"))
    block = event.get("content_block")  # the first piece of a text may begin its block
    if isinstance(block, dict):
        answer.add_text(block.get("text"))
    delta = event.get("delta")
    change = delta if isinstance(delta, dict) else {}
    answer.add_text(change.get("text"))
    answer.note(
        finish_reason=change.get("stop_reason") or message.get("stop_reason"),
        model=message.get("model"),
        answer_id=message.get("id"),
    )
    # As a stream begins, its output is that of its first piece: without a later count nobody knows the whole.
    answer.count(message.get("usage"), _COUNTS if message is event else _COUNTS_AT_FIRST)
    usage = answer.usage
    if "uncached_tokens" in usage:
        usage["input_tokens"] = sum(usage.get(name, 0) for name in _INPUT)
        if "output_tokens" in usage:
            usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]


def knows(event: dict[str, Any]) -> bool:
    """Every message and event names its type; of those to come what is no text is left out."""
    return isinstance(event.get("type"), str)


def cost(answer: Generation) -> int | None:
    """Return input and output tokens together; its own limits count them apart."""
    return answer.usage.get("total_tokens")


ANTHROPIC = Dialect(compose=compose, absorb=absorb, knows=knows, cost=cost, push_back=parse_anthropic)
