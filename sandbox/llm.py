"""The common part of the language model stand-ins: counting tokens, making text, cutting it up."""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Any

from sandbox.knobs.providers import LlmKnobs
from sandbox.provider import CallIdentity, CallTokens
from sandbox.quotas.book import QuotaKey

BYTES_PER_TOKEN = 4
DIMENSIONS = 16

_FILLER = "The quick brown fox jumps over the lazy dog. "


def count_tokens(text: str, *, factor: float = 1.0) -> int:
    """Return bytes / 4, which is the caller's estimate, times a factor, which is its error; both rounded up."""
    return math.ceil(math.ceil(len(text.encode()) / BYTES_PER_TOKEN) * factor)


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    """One answer; the same prompt always gets the same answer."""

    text: str
    prompt_tokens: int
    output_tokens: int
    is_cut: bool

    @classmethod
    def of(cls, prompt: str, knobs: LlmKnobs, *, max_tokens: int | None, schema: object = None) -> "CannedAnswer":
        """Make `knobs.output_tokens` of text, fewer when the caller allows fewer; with a schema, JSON that fits it."""
        if isinstance(schema, dict):
            text = json.dumps({"unasked": True} if knobs.schema_mismatch else example_of(schema))
            tokens = count_tokens(text)
            kept = tokens if max_tokens is None else min(max_tokens, tokens)
            text = text[: kept * BYTES_PER_TOKEN]
            return cls(text, count_tokens(prompt, factor=knobs.token_factor), kept, kept < tokens)
        tokens = knobs.output_tokens if max_tokens is None else min(max_tokens, knobs.output_tokens)
        length = tokens * BYTES_PER_TOKEN
        text = (_FILLER * (length // len(_FILLER) + 1))[:length]
        return cls(text, count_tokens(prompt, factor=knobs.token_factor), tokens, tokens < knobs.output_tokens)

    def chunks(self, count: int) -> list[str]:
        size = max(1, math.ceil(len(self.text) / count))
        return [self.text[start : start + size] for start in range(0, len(self.text), size)] or [""]


@dataclass(frozen=True, slots=True)
class Omissions:
    """Parts that an answer leaves out, drawn per call."""

    usage: bool
    end_of_stream: bool

    @classmethod
    def draw(cls, knobs: LlmKnobs, dice: Random) -> "Omissions":
        return cls(dice.random() < knobs.missing_usage_rate, dice.random() < knobs.stream_cut_rate)


def example_of(schema: dict[str, Any]) -> object:
    """Return the smallest value that fits a schema of the usual keywords; the same schema gives the same value."""
    if "const" in schema or "enum" in schema:
        return schema.get("const", next(iter(schema.get("enum", [None]))))
    for name in ("anyOf", "oneOf"):
        if schema.get(name):
            return example_of(schema[name][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: example_of(of) for name, of in schema.get("properties", {}).items()}
    if kind == "array":
        return [example_of(schema.get("items", {}))] * max(1, schema.get("minItems", 0))
    return {
        "integer": schema.get("minimum", 7),
        "number": schema.get("minimum", 7.5),
        "boolean": True,
        "null": None,
    }.get(kind, "fox")


def vector_of(text: str, dimensions: int) -> list[float]:
    """Return the vector of a text: always the same, with numbers that a float of 32 bits holds exactly."""
    digest = hashlib.sha256(text.encode()).digest()
    return [(digest[number % len(digest)] - 128) / 256 for number in range(dimensions)]


def call_tokens(answer: CannedAnswer, *, cached_share: float = 0.0) -> CallTokens:
    return CallTokens(answer.prompt_tokens, answer.output_tokens, int(answer.prompt_tokens * cached_share))


def quota_key(caller: CallIdentity, model: str, knobs: LlmKnobs) -> QuotaKey:
    """Return the key that a call is counted under: project and model, with `quotas_per` key also the caller's key."""
    owner = (("project", caller.project),)
    return (
        (*owner, ("user", caller.user), ("model", model)) if knobs.quotas_per == "key" else (*owner, ("model", model))
    )


def is_bad_key(token: str, knobs: LlmKnobs) -> bool:
    return any(fnmatchcase(token, pattern) for pattern in knobs.bad_keys)


def texts(value: object) -> Iterator[str]:
    """Yield every `text` and `content` of a request, however deep."""
    if isinstance(value, list):
        for entry in value:
            yield from texts(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name in {"text", "content"} and isinstance(entry, str):
                yield entry
            else:
                yield from texts(entry)
