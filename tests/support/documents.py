"""Long documents of real prose, and a language model with a small limit to send them through."""

from __future__ import annotations

from dataclasses import dataclass
from pydoc_data.topics import topics  # the language reference: half a megabyte of English that comes with Python
from random import Random
from typing import Any

from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.tuning.limits import create_limit
from sandbox.llm import BYTES_PER_TOKEN
from tests.support.sandbox import Sandbox

TOKENS_PER_MINUTE = 30_000
PROJECT = "acme"
MODEL = "small-1"
OUTPUT_TOKENS = 64
MIN_TOKENS, MAX_TOKENS_OF_A_CALL = 5_000, 28_000


def document(tokens: int, *, seed: int) -> str:
    """Return a text of exactly so many tokens by the sandbox's rule; the same seed gives the same text."""
    dice = Random(seed)  # noqa: S311 - chooses what the text is about
    sections: list[str] = []
    size = 0
    while size < tokens * BYTES_PER_TOKEN:
        sections += [topics[name].strip() for name in dice.sample(sorted(topics), len(topics))]
        size = len("\n\n".join(sections).encode())
    content = "\n\n".join(sections).encode()[: tokens * BYTES_PER_TOKEN].decode(errors="ignore")
    return content + "." * (tokens * BYTES_PER_TOKEN - len(content.encode()))


def documents(count: int) -> list[str]:
    """Return so many documents, their lengths spread over MIN_TOKENS to MAX_TOKENS_OF_A_CALL, in no order."""
    step = (MAX_TOKENS_OF_A_CALL - MIN_TOKENS) / (count - 1)
    sizes = [round(MIN_TOKENS + step * number) for number in range(count)]
    Random(count).shuffle(sizes)  # noqa: S311
    return [document(size, seed=number) for number, size in enumerate(sizes)]


@dataclass(frozen=True, slots=True)
class Model:
    """
    A stand-in with TOKENS_PER_MINUTE, in a window as long as a test can wait for.

    `late_seconds`: how much later than others a call may arrive. It does not shrink with the window.
    """

    provider: str
    window_seconds: float
    late_seconds: float
    headroom_percent: float = 0

    @property
    def service(self) -> str:
        return "llm" if self.provider == "openai" else self.provider

    def set_up(self, sandbox: Sandbox) -> None:
        """Set the provider's quota, the same limit here, and a credential for it."""
        quota = {"window_mode": "sliding", "window_seconds": self.window_seconds, "output_tokens": OUTPUT_TOKENS}
        sandbox.turn(**{self.provider: {**quota, "tokens_per_minute": TOKENS_PER_MINUTE, "requests_per_minute": 60}})
        figures: dict[str, Any] = {
            "service": self.service,
            "scope": "project",
            "per_model": True,
            "algorithm": "sliding_window",
            "window_seconds": self.window_seconds,
            "slack_seconds": self.late_seconds,
            "headroom_percent": self.headroom_percent,
        }
        for unit, cap in (("tokens", TOKENS_PER_MINUTE), ("requests", 60)):
            create_limit({**figures, "name": f"{self.service}-{unit}", "unit": unit, "capacity": cap}, actor="user:1")
        project, _ = Project.objects.get_or_create(pk=PROJECT, defaults={"name": PROJECT, "guard_percent": 0})
        credential = Credential.objects.create(
            name="model-key",
            service=self.service,
            quota_project=PROJECT,
            secret=seal({"api_key": f"project:{PROJECT}/user:robot"}),
            base_url=sandbox.url,
        )
        credential.projects.add(project)

    def line(self, text: str, **fields: Any) -> dict[str, Any]:
        """Return the spec of a job that sends a document."""
        payload = {
            "provider": self.provider,
            "service": self.service,
            "credential": "model-key",
            "model": MODEL,
            "prompt": text,
            "max_output_tokens": OUTPUT_TOKENS,
            **fields,
        }
        return {"kind": "llm.generate", "payload": payload}
