"""The payload of `llm.generate`, checked when a job is submitted."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from jobs.handlers.fallback import CONDITIONS, Condition, Fallback
from jobs.handlers.llm.most_output import most_output_of
from jobs.handlers.llm.native.measure import bring_input
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.tokens import (
    BYTES_PER_TOKEN,
    DEFAULT_OUTPUT_TOKENS,
    count_content_tokens,
    count_tokens,
    split_text,
)
from jobs.handlers.registry import Cost
from ratelimits.costs import INPUT_OF_CALLS, INPUT_TOKENS, OUTPUT_TOKENS, Usage

from .combine import TOKENS_FOR_A_TOKEN, Combine, combining_input, for_part, has_combining_call
from .schemas import check_schema

DEFAULT_SPLIT_TOKENS = 8_000
TOKENS_AROUND_A_TURN = 32  # added by a provider for its form; OpenAI states 3 a message and 3 for the answer
MAX_OUTPUT_TOKENS = 1_000_000
MAX_LLM_SECONDS = 590.0
CALL_SECONDS = 300.0
MAX_FALLBACKS = 5

_INSTEAD = "is not for options: use {}"
OURS = {
    # Gemini takes names in both spellings, but only the camelCase one is read here.
    "generation_config": _INSTEAD.format("generationConfig"),
    "max_output_tokens": _INSTEAD.format("max_output_tokens"),
    "candidate_count": "would bring several answers; submit several jobs",
    "model": _INSTEAD.format("model"),
    "messages": _INSTEAD.format("messages"),
    "contents": _INSTEAD.format("contents"),
    "stream": _INSTEAD.format("stream"),
    "stream_options": "is set with stream",
    "max_tokens": _INSTEAD.format("max_output_tokens"),
    "max_completion_tokens": _INSTEAD.format("max_output_tokens"),
    "maxOutputTokens": _INSTEAD.format("max_output_tokens"),
    "n": "would bring several answers; submit several jobs",
    "candidateCount": "would bring several answers; submit several jobs",
    "service_tier": "is chosen by the way that a job goes: leave it out",
    "serviceTier": "is chosen by the way that a job goes: leave it out",
}

_ASCII_NAME = r"^[A-Za-z0-9@][A-Za-z0-9._:/@-]{0,99}$"

Text = Annotated[str, Field(min_length=1)]
if TYPE_CHECKING:
    Provider = str
else:
    Provider = Literal[tuple(DIALECTS)]
CredentialName = Annotated[str, StringConstraints(min_length=1, max_length=100)]
ModelName = Annotated[str, StringConstraints(pattern=_ASCII_NAME)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
BytesPerToken = Annotated[
    float,
    Field(
        ge=1,
        le=8,
        allow_inf_nan=False,
        description="For the estimate: how many UTF-8 bytes the model's tokenizer takes for one token.",
    ),
]
CallSeconds = Annotated[float, Field(gt=0, le=MAX_LLM_SECONDS, allow_inf_nan=False)]


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    role: Literal["system", "user", "assistant"]
    content: Text


class Picture(BaseModel):
    """A picture that stands before the prompt: its address, or its content."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    url: Annotated[str, StringConstraints(pattern=r"^https?://\S+$", max_length=2_000)] | None = Field(
        default=None, description="The provider fetches it."
    )
    base64: Text | None = Field(default=None, description="Its content; with `media_type`.")
    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.url is None) == (self.base64 is None):
            raise ValueError("give exactly one of url and base64")
        if self.base64 is not None:
            if self.media_type is None:
                raise ValueError("base64 needs media_type")
            try:
                b64decode(self.base64, validate=True)
            except ValueError:
                raise ValueError("base64 is not base64") from None
        return self

    @property
    def data_url(self) -> str:
        return self.url or f"data:{self.media_type};base64,{self.base64}"


class ModelTool(BaseModel):
    """A function that the model may ask to have called; `result.tool_calls` says which, with what."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Text | None = None
    parameters: dict[str, JsonValue] = Field(
        default={"type": "object", "properties": {}}, description="JSON Schema of its arguments."
    )

    @model_validator(mode="after")
    def _is_schema(self) -> Self:
        check_schema(self.parameters)
        return self

    def as_dict(self, parameters: str) -> dict[str, Any]:
        """Return the tool in a provider's form; `parameters`: the provider's name for the schema."""
        described = {"description": self.description} if self.description else {}
        return {"name": self.name, **described, parameters: self.parameters}


class Turn(NamedTuple):
    """One message of a call. `has_pictures`: the payload's pictures stand before its text."""

    role: str
    content: str
    has_pictures: bool = False


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


class ModelPayload(BaseModel):
    """The fields that every call of a language model has. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    provider: Provider = Field(description="Whose protocol is spoken; openai: any compatible server, Azure's too.")
    service: Name | None = Field(
        default=None, description="The service of the credential and its limits, where it is not the provider's name."
    )
    credential: CredentialName = Field(description='Name of the credential; its secret is {"api_key": "..."}.')
    model: ModelName

    @property
    def service_name(self) -> str:
        return self.service or self.provider


class LlmGenerate(ModelPayload):
    """One question to a language model. Unknown fields are refused."""

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
    top_p: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Not of Anthropic, which has none.")
    stop: Annotated[list[Text], Field(min_length=1, max_length=5)] | None = Field(
        default=None, description="Texts at which the answer ends; OpenAI takes 4."
    )
    reasoning: Literal["none", "low", "medium", "high"] | None = Field(
        default=None, description="How much it thinks before it answers. Thoughts are output, and are paid for."
    )
    answer_schema: dict[str, JsonValue] | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema that the answer has to fit: the object is `result.data`. An answer that does not fit "
        "fails with schema_mismatch, and is asked for again.",
    )
    pictures: Annotated[list[Picture], Field(min_length=1, max_length=20)] | None = Field(
        default=None, description="They stand before the prompt, or before the last message of the user."
    )
    tools: Annotated[list[ModelTool], Field(min_length=1, max_length=128)] | None = None
    options: dict[str, JsonValue] | None = Field(
        default=None, description="Fields of the provider's own request, added to it last."
    )
    stream: bool = Field(default=False, description="Report progress as the answer comes in.")
    split: bool = Field(default=False, description="Cut a long prompt into parts, one call each, and join the answers.")
    split_tokens: int = Field(
        default=DEFAULT_SPLIT_TOKENS, ge=100, le=1_000_000, description="Of the prompt in a call."
    )
    combine: Combine | None = Field(
        default=None, description="How the answers to the parts become one; by default they are joined. With split."
    )
    bytes_per_token: BytesPerToken = BYTES_PER_TOKEN
    timeout_seconds: CallSeconds = CALL_SECONDS
    fallback: Annotated[list[FallbackStep], Field(max_length=MAX_FALLBACKS)] = Field(
        default_factory=list, description="Other models or providers, in order, and when to go on with each."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if sum(given is not None for given in (self.prompt, self.messages, self.contents)) != 1:
            raise ValueError("give exactly one of prompt, messages and contents")
        for way in (self, *(other.payload for other in self.ways())):
            if why := _refused_by(way):
                raise ValueError(why)
            if self.options and way.provider != self.provider:
                raise ValueError("options are of one provider's request, and fallback names another")
        if self.contents is not None:
            _check_contents(self.contents)
            if self.pictures is not None:
                raise ValueError("contents have their own pictures")
        if self.messages is not None and all(message.role == "system" for message in self.messages):
            raise ValueError("messages need one that is not of the system")
        _check_split(self)
        if self.answer_schema is not None:
            check_schema(self.answer_schema)
        _check_options(self.options or {})
        return self

    def ways(self) -> list[Fallback]:
        """The fallbacks, in order: this payload with other models."""
        return ways_of(self, self.fallback)

    @cached_property
    def parts(self) -> tuple[str | None, ...]:
        """The prompt of each call: one, or the parts that a long prompt is split into; None: there is no prompt."""
        if not self.split or self.prompt is None:
            return (self.prompt,)
        parts = split_text(self.prompt, self.split_tokens, bytes_per_token=self.bytes_per_token)
        return tuple(part for part in parts if not part.isspace()) or (self.prompt,)

    def turns(self, part: str | None) -> list[Turn]:
        """The messages of a call, the instruction first; not for contents."""
        turns = [Turn("system", self.system)] if self.system else []
        turns += [Turn(message.role, message.content) for message in self.messages or ()]
        turns += [Turn("user", part)] if part and not self.messages else []
        asked = [place for place, turn in enumerate(turns) if turn.role == "user"]
        if self.pictures and asked:
            turns[asked[-1]] = turns[asked[-1]]._replace(has_pictures=True)
        return turns

    @cached_property
    def beside(self) -> str:
        """Schema, tools and options as JSON: they are sent beside the texts, and count as input."""
        tools = [tool.model_dump() for tool in self.tools or ()]
        sent = [one for one in (self.answer_schema, tools, self.options) if one]
        return "".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in sent)

    def input_tokens(self, part: str | None) -> int:
        """Estimate the input tokens of one call."""
        texts = "".join(turn.content for turn in self.turns(part)) + self.beside
        if self.contents is None:
            pictures = DIALECTS[self.provider].picture_tokens * len(self.pictures or ())
            return count_tokens(texts, bytes_per_token=self.bytes_per_token) + pictures
        contents = [*self.contents, {"parts": [{"text": texts}]}]
        return count_content_tokens(contents, bytes_per_token=self.bytes_per_token)

    def cost(self) -> Cost:
        """Estimate the tokens of one call, of the costliest part where there are several."""
        of_part = for_part(self)
        inputs = [of_part.input_tokens(part) for part in self.parts]
        if has_combining_call(self):
            bare, answers = combining_input(self)
            inputs.append(bare.input_tokens(bare.prompt) + answers)
        told = self.stated_output
        return cost_of(self.provider, inputs, told=told, bound=told or most_output_of(self.model))

    @property
    def stated_output(self) -> int | None:
        """The maximum of output tokens that a call states; some providers require one in every call."""
        return self.max_output_tokens or DIALECTS[self.provider].stated_output

    def most(self) -> Usage:
        """
        The most that one call can use: no tokenizer makes more tokens of a text than it has bytes. Nobody knows before
        how much pictures and files count.
        """
        if self.contents is not None and any("text" not in part for one in self.contents for part in _parts_of(one)):
            return Usage(None, 0, self.stated_output)
        if self.pictures or bring_input((self.options or {}).get("tools")):
            return Usage(None, 0, self.stated_output)
        of_part = for_part(self)
        sizes = [of_part.input_bytes(part) for part in self.parts]
        if has_combining_call(self):
            bare, answers = combining_input(self)
            sizes.append(bare.input_bytes(bare.prompt) + TOKENS_FOR_A_TOKEN * answers)
        return Usage(max(sizes), 0, self.stated_output, written_1h_tokens=kept_an_hour(self.beside))

    def input_bytes(self, part: str | None) -> int:
        """The most tokens that one call's input can count: the bytes of its texts, and what stands around them."""
        texts = [self.beside]
        texts += [json.dumps(self.contents, ensure_ascii=False)] if self.contents is not None else []
        turns = self.turns(part)
        around = TOKENS_AROUND_A_TURN * (1 + len(turns) + len(self.contents or ()))
        return sum(len(text.encode()) for text in (*texts, *(turn.content for turn in turns))) + around


def kept_an_hour(written: str) -> int | None:
    """Return how much input a request asks a cache to keep for an hour: 0, or None where it may be any part of it."""
    return None if '"1h"' in written else 0


def ways_of(payload: ModelPayload, steps: Sequence[FallbackStep]) -> list[Fallback]:
    """Return the payload as each fallback changes it; a change of provider resets the service to the provider's."""
    found = []
    for step in steps:
        moves = step.provider is not None and step.provider != payload.provider
        changes = {
            "provider": step.provider or payload.provider,
            "service": step.service or (None if moves else payload.service),
            "credential": step.credential or payload.credential,
            "model": step.model,
        }
        found.append(Fallback(payload.model_copy(update=changes), frozenset(step.when), step.after_seconds))
    return found


def cost_of(
    provider: str, inputs: Sequence[int], *, told: int | None, bound: int | None, guess: int = DEFAULT_OUTPUT_TOKENS
) -> Cost:
    """
    Return the tokens of a payload's calls, of the costliest where there are several.

    Gemini's limits of tokens count input alone; others count input and output. `units` has both apart, for limits that
    count only one of them.

    Args:
        inputs: The input tokens of each call.
        told: The maximum of output tokens that a call states; None: it states none.
        bound: The most output tokens that a call can bring; None: unknown, and `guess` is used.
    """
    known, output = max(inputs), bound or guess
    units = {INPUT_TOKENS: known, OUTPUT_TOKENS: output}
    if len(inputs) > 1:
        units[INPUT_OF_CALLS] = sum(inputs)
    unknown = output if DIALECTS[provider].counts_output else 0
    return Cost(known, unknown, units, is_bound=bound is not None, told_output=told, calls=len(inputs))


def _refused_by(way: LlmGenerate) -> str:
    """Return what the provider of a way is known to refuse; empty: nothing."""
    dialect = DIALECTS[way.provider]
    if why := dialect.refuses_model(way.model):
        return why
    if way.contents is not None and not dialect.takes_contents:
        return "contents are Gemini's; use messages"
    return dialect.refuses(way)


def _check_split(payload: LlmGenerate) -> None:
    if not payload.split:
        if payload.combine is not None:
            raise ValueError("combine is for the answers to parts: set split")
        return
    if payload.prompt is None:
        raise ValueError("only a prompt can be split")
    is_combined = has_combining_call(payload)
    if is_combined and payload.max_output_tokens is None:
        raise ValueError("combine.system needs max_output_tokens: so long may each answer be that its call reads")
    schema = None if is_combined else payload.answer_schema
    for name, value in (("schema", schema), ("tools", payload.tools)):
        if value is not None:
            raise ValueError(f"{name} is for one answer; split makes several")


def _check_options(options: dict[str, Any]) -> None:
    config = options.get("generationConfig")
    named = [*options, *(config if isinstance(config, dict) else ())]
    for name in named:
        if (instead := OURS.get(name)) is not None:
            raise ValueError(f"options: {name} {instead}")


def _parts_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = content["parts"]
    return parts


def _check_contents(contents: list[dict[str, Any]]) -> None:
    for content in contents:
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
            raise ValueError('each of contents needs "parts", a list of objects')
    json.dumps(contents, allow_nan=False)
