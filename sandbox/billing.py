"""The callers' bill: calls and tokens by provider, model, and live or batch, and prompts that were paid for again."""

import hashlib
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sandbox.provider import CallTokens

MAX_PROMPTS = 1_000_000

Via = Literal["live", "batch"]


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 0


def digest_of(prompt: str) -> bytes:
    return hashlib.blake2b(prompt.encode(), digest_size=16).digest()


class Billing:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._sums: defaultdict[tuple[str, str, Via], _Sum] = defaultdict(_Sum)
        self._prompts: Counter[bytes] = Counter()
        self._custom_ids: Counter[str] = Counter()
        self._paid_again = self._batch_lines_paid_again = self._untracked = 0

    def note(
        self,
        *,
        provider: str,
        model: str,
        via: Via,
        tokens: CallTokens,
        digest: bytes,
        custom_id: str | None = None,
        is_readable: bool = True,
    ) -> None:
        """
        Bill an answer, and note that the prompt with this digest was paid for.

        An answer that the caller can never read is paid for, and may be asked for again.
        """
        total = self._sums[provider, model, via]
        total.calls += 1
        total.prompt_tokens += tokens.prompt
        total.cached_tokens += tokens.cached
        total.cache_written_tokens += tokens.cache_written
        total.output_tokens += tokens.output
        if not is_readable:
            return
        if digest not in self._prompts and len(self._prompts) >= MAX_PROMPTS:
            self._untracked += 1
            return
        self._paid_again += digest in self._prompts
        self._prompts[digest] += 1
        if custom_id is not None:
            self._batch_lines_paid_again += custom_id in self._custom_ids
            self._custom_ids[custom_id] += 1

    def report(self) -> dict[str, Any]:
        """Return the sums, and how many readable answers were to a prompt or a custom_id that was paid for before."""
        sums = [
            {"provider": provider, "model": model, "via": via, **asdict(total)}
            for (provider, model, via), total in sorted(self._sums.items())
        ]
        return {
            "billed": sums,
            "prompts_paid": len(self._prompts),
            "prompts_paid_again": self._paid_again,
            "custom_ids_paid": len(self._custom_ids),
            "custom_ids_paid_again": self._batch_lines_paid_again,
            "prompts_untracked": self._untracked,
        }
