"""A message sent as events."""

import json
from typing import Any

from sandbox.anthropic.errors import MESSAGES
from sandbox.llm import CannedAnswer, Omissions


def events(
    message: dict[str, Any],
    answer: CannedAnswer,
    omissions: Omissions,
    *,
    chunks: int,
    is_overloaded: bool,
) -> list[str]:
    """
    Return the events of a message, as they go over the wire.

    The `message_delta` near the end has all of the usage. A cut stream ends after the text. An overloaded stream then
    has an `error` event as its last one, under the status 200 that was sent before.
    """
    usage = message.get("usage")
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    if usage is not None:
        start["usage"] = {**usage, "output_tokens": 1}
    pieces = [
        _event("message_start", message=start),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _event("ping"),
    ]
    deltas = [{"type": "text_delta", "text": part} for part in answer.chunks(chunks)]
    pieces += [_event("content_block_delta", index=0, delta=delta) for delta in deltas]
    if is_overloaded:
        return [*pieces, _event("error", error={"type": "overloaded_error", "message": MESSAGES[529]})]
    if omissions.end_of_stream:
        return pieces
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    ended = {"delta": delta} if usage is None else {"delta": delta, "usage": usage}
    return [*pieces, _event("content_block_stop", index=0), _event("message_delta", **ended), _event("message_stop")]


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
