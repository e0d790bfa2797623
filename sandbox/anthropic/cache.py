"""Prompt caching: a prompt that begins as an earlier one did is read from the cache up to a marked block."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.llm import count_tokens, texts

MAX_PREFIXES = 100_000


@dataclass(frozen=True, slots=True)
class Prefix:
    """The start of a prompt, up to a block with `cache_control`."""

    digest: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text, and its prefixes that may be cached, shortest first."""

    text: str
    prefixes: tuple[Prefix, ...]

    @classmethod
    def of(cls, body: Mapping[str, Any], *, factor: float, minimum_tokens: int) -> "Prompt":
        """Read tools, system and messages, in the order in which the service caches them."""
        text, prefixes = "", []
        for part, is_marked in _blocks(body):
            text += part
            if is_marked and (tokens := count_tokens(text, factor=factor)) >= minimum_tokens:
                prefixes.append(Prefix(hashlib.sha256(text.encode()).digest(), tokens))
        return cls(text, tuple(prefixes))


class PromptCache:
    """The prefixes of each organization and model; beyond MAX_PREFIXES the least recently used one is dropped."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._expires: OrderedDict[tuple[str, str, bytes], float] = OrderedDict()

    def look_up(self, prompt: Prompt, *, project: str, model: str, now: float) -> tuple[int, int]:
        """Return the tokens that would be read from the cache, and those that would be written to it."""
        if not prompt.prefixes:
            return 0, 0
        found = (
            prefix.tokens
            for prefix in reversed(prompt.prefixes)
            if self._expires.get((project, model, prefix.digest), now) > now
        )
        read = next(found, 0)
        return read, prompt.prefixes[-1].tokens - read

    def keep(self, prompt: Prompt, *, project: str, model: str, until: float) -> None:
        """Store the prefixes of a prompt that was answered; a prefix that was read is renewed."""
        for prefix in prompt.prefixes:
            name = (project, model, prefix.digest)
            self._expires[name] = until
            self._expires.move_to_end(name)
        while len(self._expires) > MAX_PREFIXES:
            self._expires.popitem(last=False)


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the text of each block, and whether it is marked."""
    for tool in _list(body.get("tools")):
        yield str(tool), _is_marked(tool)
    yield from _content(body.get("system"))
    for message in _list(body.get("messages")):
        if isinstance(message, Mapping):
            yield from _content(message.get("content"))


def _content(content: Any) -> Iterator[tuple[str, bool]]:
    if isinstance(content, str):
        yield content, False
    for block in _list(content):
        yield "".join(texts(block)), _is_marked(block)


def _is_marked(block: Any) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("cache_control"), Mapping)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
