"""Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ratelimits.feedback import (
    MINUTE_SECONDS,
    TOO_MANY_REQUESTS,
    PushBack,
    Violation,
    bounded_delay,
    cap_of,
    error_of,
    short_text,
    stated_violation,
    wait_told,
)
from ratelimits.quota_names import read_quota_name, read_unit
from ratelimits.rate_headers import read_quotas

from .dialect import (
    Dialect,
    ErrorWords,
    Generation,
    ModelRequest,
    codes_of,
    phrases,
    with_options,
)
from .tokens import DEFAULT_OUTPUT_TOKENS

if TYPE_CHECKING:
    from jobs.handlers.llm.requests.payload import LlmGenerate, Turn

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

WORDS = ErrorWords(
    too_long=phrases(r"^prompt is too long", r"exceed context limit"),
    no_credit_codes=frozenset({"enforced_spend_limit_reached", "1113", "1309"}),  # the numbers are Z.ai's
    no_credit=phrases(
        r"^your credit balance is too low",
        r"^you have reached your specified (?:\w+ )?api usage limits",
        r"^insufficient balance \(1008\)",  # MiniMax, which speaks this dialect, too
    ),
    no_quota=phrases(r"extra usage is required for long context"),
    closed=phrases(r"^this organization has been disabled"),
    blocked=phrases(r"blocked by content filtering policy"),
)
_LIMIT_IN_MESSAGE = re.compile(r"rate limit of ([0-9,]{1,30}) ((?:input |output |)(?:tokens|requests) per [a-z]{1,10})")
# Anthropic states input tokens in three parts; our `input_tokens` is their sum.
_COUNTS = {
    "input_tokens": "uncached_tokens",
    "cache_read_input_tokens": "cached_tokens",
    "cache_creation_input_tokens": "cache_written_tokens",
    "output_tokens": "output_tokens",
}
OF_CACHE_CREATION = {"ephemeral_1h_input_tokens": "cache_written_1h_tokens"}  # part of what was written
_SEARCHES = {"web_search_requests": "web_searches"}  # each has a price, which is in no amount here
_COUNTS_AT_FIRST = {theirs: ours for theirs, ours in _COUNTS.items() if ours != "output_tokens"}
_INPUT = ("uncached_tokens", "cached_tokens", "cache_written_tokens")


def compose(payload: LlmGenerate, part: str | None, base_url: str, api_key: str) -> ModelRequest:
    turns = payload.turns(part)
    said = [{"role": turn.role, "content": _content(turn, payload)} for turn in turns if turn.role != "system"]
    body: dict[str, Any] = {
        "model": payload.model,
        "max_tokens": payload.stated_output,
        "messages": said,
    }
    instructions = "\n\n".join(turn.content for turn in turns if turn.role == "system")
    if instructions:
        block = {"type": "text", "text": instructions, "cache_control": {"type": "ephemeral"}}
        body["system"] = [block] if payload.cache_system else instructions
    named = {"temperature": payload.temperature, "top_p": payload.top_p, "stop_sequences": payload.stop}
    body |= {name: value for name, value in named.items() if value is not None}
    output: dict[str, Any] = {}
    if payload.reasoning == "none":
        body["thinking"] = {"type": "disabled"}
    elif payload.reasoning is not None:
        output["effort"] = payload.reasoning
    if payload.answer_schema is not None:
        output["format"] = {"type": "json_schema", "schema": payload.answer_schema}
    if output:
        body["output_config"] = output
    if payload.tools:
        body["tools"] = [tool.as_dict("input_schema") for tool in payload.tools]
    body = with_options(body, payload.options)
    if payload.stream:
        body["stream"] = True
    return ModelRequest(*address("/v1/messages", base_url, api_key), body)


def address(path: str, base_url: str, api_key: str) -> tuple[str, dict[str, str]]:
    """Return where a call goes, and its headers."""
    root = (base_url or BASE_URL).rstrip("/").removesuffix("/v1")
    return f"{root}{path}", {"x-api-key": api_key, "anthropic-version": VERSION}


def _content(turn: Turn, payload: LlmGenerate) -> str | list[dict[str, Any]]:
    """Return the turn's text, or blocks if pictures come before the text."""
    if not turn.has_pictures:
        return turn.content
    pictures = [
        {"type": "image", "source": {"type": "url", "url": one.url}}
        if one.url
        else {"type": "image", "source": {"type": "base64", "media_type": one.media_type, "data": one.base64}}
        for one in payload.pictures or ()
    ]
    return [*pictures, {"type": "text", "text": turn.content}]


def absorb(answer: Generation, event: dict[str, Any]) -> None:
    """Take a whole message, or what an event of a stream adds to it: text and tool calls; the rest is left out."""
    message = event.get("message") if event.get("type") == "message_start" else event
    if not isinstance(message, dict):
        return
    blocks = message.get("content")
    for place, block in enumerate(blocks if isinstance(blocks, list) else ()):
        _add_block(answer, block, place)
    _add_block(answer, event.get("content_block"), event.get("index"))  # a block's start may have its first text
    delta = event.get("delta")
    change = delta if isinstance(delta, dict) else {}
    answer.add_text(change.get("text"))
    if change.get("type") == "input_json_delta":
        answer.add_call(_place(event.get("index")), arguments=change.get("partial_json"))
    answer.note(
        finish_reason=change.get("stop_reason") or message.get("stop_reason"),
        model=message.get("model"),
        answer_id=message.get("id"),
    )
    # A stream's first event counts the output of its first piece alone: without a later count the whole is unknown.
    told = message.get("usage")
    answer.count(told, _COUNTS if message is event else _COUNTS_AT_FIRST)
    if isinstance(told, dict):
        answer.count(told.get("cache_creation"), OF_CACHE_CREATION)
        answer.count(told.get("server_tool_use"), _SEARCHES)
        answer.note(tier=told.get("service_tier"))
    usage = answer.usage
    if "uncached_tokens" in usage:
        usage["input_tokens"] = sum(usage.get(name, 0) for name in _INPUT)
        if "output_tokens" in usage:
            usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]


def _add_block(answer: Generation, block: Any, place: Any) -> None:
    """Add a block of text, or a tool call, whose arguments a stream brings in later events."""
    if not isinstance(block, dict):
        return
    answer.add_text(block.get("text"))
    answer.thought |= block.get("type") in ("thinking", "redacted_thinking")
    if block.get("type") == "tool_use":
        arguments = block.get("input") or None
        answer.add_call(_place(place), name=block.get("name"), call_id=block.get("id"), arguments=arguments)


def _place(index: Any) -> int:
    return index if type(index) is int else 0


def knows(event: dict[str, Any]) -> bool:
    """Whether the object has a type, as every message and event has; a new type is accepted, and its text is read."""
    return isinstance(event.get("type"), str)


def cost(answer: Generation) -> int | None:
    """Return input and output tokens together; Anthropic's limits count them apart."""
    return answer.counts.get("total_tokens")


def parse_anthropic(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of Anthropic's from its message, or from the headers of the only quota without room.

    Returns:
        None unless the status is 429: a 529 says that Anthropic's servers are overloaded, which is no quota. None, too,
        if the month's spend is used up.
    """
    error = error_of(body)
    if status != TOO_MANY_REQUESTS or codes_of(error) & WORDS.no_credit_codes:
        return None
    message = short_text(error.get("message"), most=10_000)
    said = _LIMIT_IN_MESSAGE.search(message)
    retry_after = wait_told(headers, error, message)
    if said:
        read = read_quota_name(said[2])
        cap = cap_of(said[1].replace(",", "")) if read.period == "minute" else None
        return PushBack((Violation(said[2], "project", read.unit, stated_cap=cap),), retry_after)
    empty = [quota for quota in read_quotas(headers) if quota.remaining == 0]
    if len(empty) != 1 and (unit := read_unit(message)):
        return PushBack((Violation(unit, "project", unit),), retry_after)
    violations = tuple(
        stated_violation(replace(one, window_seconds=MINUTE_SECONDS)) for one in empty[: len(empty) == 1]
    )
    told = bounded_delay(empty[0].reset_seconds or 0.0) if violations else None
    return PushBack(violations, retry_after or told)


def refuses(payload: LlmGenerate) -> str:
    if (payload.temperature or 0) > 1:
        return "Anthropic's temperature is at most 1"
    return "Anthropic takes no seed" if payload.seed is not None else ""


def models(base_url: str, api_key: str) -> tuple[str, dict[str, str]]:
    root = (base_url or BASE_URL).rstrip("/").removesuffix("/v1")
    return f"{root}/v1/models", {"x-api-key": api_key, "anthropic-version": VERSION}


ANTHROPIC = Dialect(
    compose=compose,
    absorb=absorb,
    knows=knows,
    cost=cost,
    push_back=parse_anthropic,
    words=WORDS,
    picture_tokens=1_600,
    stated_output=DEFAULT_OUTPUT_TOKENS,
    refuses=refuses,
    models=models,
)
