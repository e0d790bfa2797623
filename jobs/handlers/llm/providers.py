"""The providers of language models, by the name that payloads give them. A new provider is a line here and a file."""

from __future__ import annotations

from dataclasses import replace

from .anthropic import ANTHROPIC
from .batches.anthropic import AnthropicBatches
from .batches.gemini import GeminiBatches
from .batches.openai import OpenAiBatches
from .dialect import Dialect
from .gemini import GEMINI
from .openai import OPENAI

DIALECTS: dict[str, Dialect] = {
    "gemini": replace(GEMINI, batches=GeminiBatches()),
    "openai": replace(OPENAI, batches=OpenAiBatches(endpoint="/v1/chat/completions")),
    "anthropic": replace(ANTHROPIC, batches=AnthropicBatches()),
}
