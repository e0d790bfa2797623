"""The providers of language models, by the name that payloads give them. A new one is a line here and its file."""

from __future__ import annotations

from .anthropic import ANTHROPIC
from .dialect import Dialect
from .gemini import GEMINI
from .openai import OPENAI

DIALECTS: dict[str, Dialect] = {"gemini": GEMINI, "openai": OPENAI, "anthropic": ANTHROPIC}
