"""Chat completions as they are answered, live and in batches."""

from typing import Any
from uuid import uuid4

from sandbox import clock
from sandbox.knobs.providers import OpenAiKnobs
from sandbox.llm import CannedAnswer, call_tokens


def usage_of(generation: CannedAnswer, knobs: OpenAiKnobs) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.output_tokens,
        "total_tokens": generation.prompt_tokens + generation.output_tokens,
    }
    if knobs.reasoning_share:  # as xAI counts it: in the total alone
        reasoning = round(generation.output_tokens * knobs.reasoning_share)
        usage["completion_tokens"] -= reasoning
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    if knobs.cached_share:
        cached = call_tokens(generation, cached_share=knobs.cached_share).cached
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


def head_of(model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid4().hex}", "created": int(clock.now()), "model": model}


def completion(generation: CannedAnswer, model: str, usage: dict[str, Any] | None) -> dict[str, Any]:
    """Return an answer as the service gives it; if `usage` is None, the answer has none."""
    message = {"role": "assistant", "content": generation.text}
    choices = [{"index": 0, "message": message, "finish_reason": reason_of(generation)}]
    answer = {**head_of(model), "object": "chat.completion", "choices": choices}
    return answer if usage is None else {**answer, "usage": usage}


def reason_of(generation: CannedAnswer) -> str:
    return "length" if generation.is_cut else "stop"
