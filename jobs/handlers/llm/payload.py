"""The payload of `llm.generate`, checked when a job is submitted."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from jobs.handlers.fallback import CONDITIONS, Condition, Fallback
from jobs.handlers.registry import Cost
from ratelimits.costs import INPUT_OF_CALLS, INPUT_TOKENS, OUTPUT_TOKENS, Usage

from .most_output import most_output_of
from .tokens import BYTES_PER_TOKEN, count_content_tokens, count_tokens, split_text

DEFAULT_OUTPUT_TOKENS = 1_000
DEFAULT_SPLIT_TOKENS = 8_000
TOKENS_AROUND_A_TURN = 32  # that a provider adds for its form; OpenAI states 3 a message and 3 for the answer
MAX_OUTPUT_TOKENS = 1_000_000
MAX_LLM_SECONDS = 590.0
MOST_FALLBACKS = 5

_ASCII_NAME = r"^[A-Za-z0-9@][A-Za-z0-9._:/@-]{0,99}$"
# It becomes part of a path there.
_NAME_IN_A_PATH = re.compile(r"[A-Za-z0-9._@-]+")

Text = Annotated[str, Field(min_length=1)]
Provider = Literal["gemini", "openai", "anthropic"]
CredentialName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
ModelName = Annotated[str, StringConstraints(pattern=_ASCII_NAME)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    role: Literal["system", "user", "assistant"]
    content: Text


class FallbackStep(BaseModel):
    """Another model, and when to go on with it. A field that is left out is as in the payload."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    provider: Provider | None = None
    service: Name | None = Field(default=None, description="Left out where another provider is named: that one's.")
    credential: CredentialName | None = None
    model: ModelName
    when: Annotated[list[Condition], Field(min_length=1)] = Field(
        default=list(CONDITIONS),
        description="rate_limited: it has waited for limits longer than after_seconds; unavailable: what it calls does "
        "not answer; context_too_long: its input is too long for the model; no_credit: the provider wants to be paid.",
    )
    after_seconds: float = Field(default=300.0, ge=0, le=604_800, allow_inf_nan=False)


class LlmGenerate(BaseModel):
    """One question to a language model. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    provider: Provider = Field(description="Whose protocol is spoken; openai: any compatible server, Azure's too.")
    service: Name | None = Field(
        default=None, description="The service of the credential and its limits, where it is not the provider's name."
    )
    credential: CredentialName = Field(description='Name of the credential; its secret is {"api_key": "..."}.')
    model: ModelName
    prompt: Text | None = Field(default=None, description="Exactly one of prompt, messages and contents.")
    messages: Annotated[list[Message], Field(min_length=1, max_length=1_000)] | None = None
    contents: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=1_000)] | None = Field(
        default=None, description="As Gemini takes them, with pictures and files; gemini only."
    )
    system: Text | None = Field(default=None, description="The instruction, sent with every part.")
    cache_system: bool = Field(
        default=False, description="anthropic only: the provider keeps the instruction for calls that have the same."
    )
    max_output_tokens: int | None = Field(default=None, ge=1, le=MAX_OUTPUT_TOKENS, description="Of each call.")
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    stream: bool = Field(default=False, description="Report progress as the answer comes in.")
    split: bool = Field(default=False, description="Cut a long prompt into parts, one call each, and join the answers.")
    split_tokens: int = Field(
        default=DEFAULT_SPLIT_TOKENS, ge=100, le=1_000_000, description="Of the prompt in a call."
    )
    bytes_per_token: float = Field(
        default=BYTES_PER_TOKEN,
        ge=1,
        le=8,
        allow_inf_nan=False,
        description="For the estimate: how many UTF-8 bytes the model's tokenizer takes for one token.",
    )
    timeout_seconds: float = Field(default=300.0, gt=0, le=MAX_LLM_SECONDS, allow_inf_nan=False)
    fallback: Annotated[list[FallbackStep], Field(max_length=MOST_FALLBACKS)] = Field(
        default_factory=list, description="Other models or providers, in order, and when to go on with each."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if sum(given is not None for given in (self.prompt, self.messages, self.contents)) != 1:
            raise ValueError("give exactly one of prompt, messages and contents")
        for way in (self, *(other.payload for other in self.ways())):
            if way.provider == "gemini" and not _NAME_IN_A_PATH.fullmatch(way.model):
                raise ValueError("the name of a Gemini model has letters, digits, dots, dashes, underscores and @ only")
            if way.provider == "anthropic" and self.temperature is not None and self.temperature > 1:
                raise ValueError("Anthropic's temperature is at most 1")
            if way.contents is not None and way.provider != "gemini":
                raise ValueError("contents are Gemini's; use messages")
        if self.contents is not None:
            _check_contents(self.contents)
        if self.messages is not None and all(message.role == "system" for message in self.messages):
            raise ValueError("messages need one that is not of the system")
        if self.split and self.prompt is None:
            raise ValueError("only a prompt can be split")
        return self

    @property
    def service_name(self) -> str:
        return self.service or self.provider

    def ways(self) -> list[Fallback]:
        """The other ways to ask, in order: what this payload is with another model."""
        found = []
        for step in self.fallback:
            moves = step.provider is not None and step.provider != self.provider
            changes = {
                "provider": step.provider or self.provider,
                "service": step.service or (None if moves else self.service),
                "credential": step.credential or self.credential,
                "model": step.model,
            }
            way = self.model_copy(update=changes)
            found.append(Fallback(way, frozenset(step.when), step.after_seconds))
        return found

    @cached_property
    def parts(self) -> tuple[str | None, ...]:
        """The prompts of the calls to make: one, or those a long prompt is split into; None: there is no prompt."""
        if not self.split or self.prompt is None:
            return (self.prompt,)
        parts = split_text(self.prompt, self.split_tokens, bytes_per_token=self.bytes_per_token)
        return tuple(part for part in parts if not part.isspace()) or (self.prompt,)

    def turns(self, part: str | None) -> list[Message]:
        """The messages of a call, the instruction first; not for contents."""
        first = [Message(role="system", content=self.system)] if self.system else []
        return [*first, *(self.messages or ([Message(role="user", content=part)] if part else []))]

    def input_tokens(self, part: str | None) -> int:
        """Estimate what one call's input counts."""
        texts = "".join(turn.content for turn in self.turns(part))
        if self.contents is None:
            return count_tokens(texts, bytes_per_token=self.bytes_per_token)
        contents = [*self.contents, {"parts": [{"text": texts}]}]
        return count_content_tokens(contents, bytes_per_token=self.bytes_per_token)

    def cost(self) -> Cost:
        """
        Estimate the tokens of one call, of the costliest part where there are several.

        Gemini's limits of tokens count input alone; others count input and output. Limits of input and of output
        tokens are told apart. If nobody knows how much a model can write, the estimate is DEFAULT_OUTPUT_TOKENS.
        """
        inputs = [self.input_tokens(part) for part in self.parts]
        known = max(inputs)
        told = self.stated_output
        bound = told or most_output_of(self.model)
        output = bound or DEFAULT_OUTPUT_TOKENS
        units = {INPUT_TOKENS: known, OUTPUT_TOKENS: output}
        if len(inputs) > 1:
            units[INPUT_OF_CALLS] = sum(inputs)
        unknown = 0 if self.provider == "gemini" else output
        return Cost(known, unknown, units, is_bound=bound is not None, told_output=told, calls=len(inputs))

    @property
    def stated_output(self) -> int | None:
        """The most output tokens that a call is told to bring; Anthropic has to be told always."""
        return self.max_output_tokens or (DEFAULT_OUTPUT_TOKENS if self.provider == "anthropic" else None)

    def most(self) -> Usage:
        """
        The most that one call can use: no tokenizer makes more tokens of a text than it has bytes. What pictures and
        files count nobody knows before.
        """
        if self.contents is not None and any("text" not in part for one in self.contents for part in _parts_of(one)):
            return Usage(None, 0, self.stated_output)
        texts = [json.dumps(self.contents, ensure_ascii=False)] if self.contents is not None else []
        sizes = [
            sum(len(text.encode()) for text in (*texts, *(turn.content for turn in self.turns(part))))
            + TOKENS_AROUND_A_TURN * (1 + len(self.turns(part)) + len(self.contents or ()))
            for part in self.parts
        ]
        return Usage(max(sizes), 0, self.stated_output)


def _parts_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = content["parts"]
    return parts


def _check_contents(contents: list[dict[str, Any]]) -> None:
    for content in contents:
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
            raise ValueError('each of contents needs "parts", a list of objects')
    json.dumps(contents, allow_nan=False)
