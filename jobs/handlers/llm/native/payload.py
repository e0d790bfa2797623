"""The payload of `llm.call`, checked when a job is submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, model_validator

from jobs.handlers.fallback import Fallback
from jobs.handlers.http.answers import MAX_JSON_DEPTH
from jobs.handlers.llm.most_output import most_output_of
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.requests.payload import (
    CALL_SECONDS,
    MAX_FALLBACKS,
    MAX_OUTPUT_TOKENS,
    TOKENS_AROUND_A_TURN,
    BytesPerToken,
    CallSeconds,
    FallbackStep,
    ModelName,
    ModelPayload,
    cost_of,
    kept_an_hour,
    ways_of,
)
from jobs.handlers.llm.tokens import BYTES_PER_TOKEN, DEFAULT_OUTPUT_TOKENS, tokens_of_bytes
from jobs.handlers.registry import Cost
from ratelimits.costs import INPUT_TOKENS, OUTPUT_TOKENS, Usage

from .endpoints import ENDPOINTS, ModelEndpoint, endpoint_of
from .measure import MeasuredBody, is_deeper, measure, member_at

MAX_ANSWERS = 128
# An answer repeats parts of its request, such as tools, some levels further in, and must be stored when it is paid for.
MAX_BODY_DEPTH = MAX_JSON_DEPTH - 10
# These members are either set by QueueOps itself, or would change the form of the answer.
OURS = {
    "stream": "is set by the payload's stream",
    "stream_options": "is set by the payload's stream",
    "service_tier": "is chosen by the way that a job goes: leave it out",
    "serviceTier": "is chosen by the way that a job goes: leave it out",
    "background": "would be answered before the work is done; the queue waits for you",
}
TIERS = {"service_tier": ("auto", "default")}  # values that have no effect


class LlmCall(ModelPayload):
    """One request in a provider's own form. Unknown fields are refused; those of the body are the provider's."""

    endpoint: str | None = Field(
        default=None,
        description="Where the body goes: "
        + "; ".join(f"{provider}: {', '.join(known)}" for provider, known in ENDPOINTS.items())
        + ". The first of a provider, unless it is named.",
    )
    model: ModelName = Field(description="May be left out where the body has it.")
    body: dict[str, JsonValue] = Field(
        description="The provider's own request. It is sent as it is written, but for the model of a fallback and what "
        "`stream` adds."
    )
    stream: bool = Field(
        default=False, description="Report progress as the answer comes in; the result has its text, and no body."
    )
    bytes_per_token: BytesPerToken = BYTES_PER_TOKEN
    timeout_seconds: CallSeconds = CALL_SECONDS
    fallback: Annotated[list[FallbackStep], Field(max_length=MAX_FALLBACKS)] = Field(
        default_factory=list, description="Other models of the same provider, in order, and when to go on with each."
    )

    @model_validator(mode="before")
    @classmethod
    def _has_its_model(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("model") is None and isinstance(given.get("body"), dict):
            named = given["body"].get("model")
            return given if named is None else {**given, "model": named}
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        endpoint = endpoint_of(self.provider, self.endpoint)
        if endpoint is None:
            known = ", ".join(ENDPOINTS.get(self.provider, {})) or "none"
            raise ValueError(f"endpoint: {self.endpoint!r} is none that is known of {self.provider}; known: {known}")
        if self.stream and not endpoint.streams:
            raise ValueError("stream: this endpoint answers in one piece")
        if self.stream and self.answers > 1:
            raise ValueError(
                "stream: the pieces of several answers come mixed; leave it out, and all are in the result"
            )
        for way in (self, *(other.payload for other in self.ways())):
            if way.provider != self.provider:
                raise ValueError("fallback: another provider would need another body; use llm.generate")
            if why := DIALECTS[way.provider].refuses_model(way.model):
                raise ValueError(f"model: {why}")
        if is_deeper(self.body, MAX_BODY_DEPTH):
            raise ValueError(f"body: it is nested deeper than {MAX_BODY_DEPTH} levels")
        _check_body(self, endpoint)
        json.dumps(self.body, allow_nan=False)
        return self

    @cached_property
    def target(self) -> ModelEndpoint:
        found = endpoint_of(self.provider, self.endpoint)
        if found is None:  # never: the payload was checked
            raise ValueError(self.endpoint)
        return found

    def ways(self) -> list[Fallback]:
        """The fallbacks, in order: the same body for other models."""
        return ways_of(self, self.fallback)

    @property
    def ours(self) -> dict[str, Any]:
        """The members that QueueOps adds to the body, or sends with another value than the body has."""
        said = {} if self.provider == "gemini" or self.body.get("model") == self.model else {"model": self.model}
        return {**said, **(self.target.stream_fields if self.stream else {})}

    @property
    def sent(self) -> dict[str, Any]:
        return {**self.body, **self.ours}

    @cached_property
    def measured(self) -> MeasuredBody:
        return measure(self.body)

    def input_tokens(self) -> int:
        """Estimate the input's tokens."""
        found = self.measured
        texts = tokens_of_bytes(found.text_bytes, bytes_per_token=self.bytes_per_token)
        return texts + found.tokens + found.pictures * DIALECTS[self.provider].picture_tokens

    @property
    def answers(self) -> int:
        wanted = member_at(self.body, self.target.answers) if self.target.answers else None
        return wanted if type(wanted) is int else 1

    @property
    def told_output(self) -> int | None:
        """The maximum of output tokens that the body states, for all its answers together; None: it states none."""
        told = (member_at(self.body, path) for path in self.target.most_output)
        most = next((one for one in told if type(one) is int), None)
        return None if most is None else most * self.answers

    def cost(self) -> Cost:
        """Estimate the call's tokens, as `llm.generate` does; an endpoint without text brings no output tokens."""
        known = self.input_tokens()
        if not self.target.writes:
            return Cost(known, units={INPUT_TOKENS: known, OUTPUT_TOKENS: 0})
        told, documented = self.told_output, most_output_of(self.model)
        bound = told or (documented and documented * self.answers)
        return cost_of(self.provider, [known], told=told, bound=bound, guess=DEFAULT_OUTPUT_TOKENS * self.answers)

    def most(self) -> Usage:
        """The most that the call can use: no tokenizer makes more tokens of a text than it has bytes."""
        output = self.told_output if self.target.writes else 0
        if not self.measured.is_known or self.measured.pictures:
            return Usage(None, 0, output)
        turns = max((len(value) for value in self.body.values() if isinstance(value, list)), default=0)
        written = json.dumps(self.body, ensure_ascii=False)
        size = len(written.encode(errors="replace")) + TOKENS_AROUND_A_TURN * (2 + turns)
        return Usage(size, 0, output, written_1h_tokens=kept_an_hour(written))


def _check_body(payload: LlmCall, endpoint: ModelEndpoint) -> None:
    """
    Raises:
        ValueError: Names the first member that the provider would refuse or answer in another form, with its place.
    """
    for place, why in (*_refused(payload, endpoint), *_uncounted(payload.body, endpoint)):
        if why:
            raise ValueError(f"body.{place} {why}")


def _refused(payload: LlmCall, endpoint: ModelEndpoint) -> Iterator[tuple[str, str]]:
    body, model = payload.body, payload.model
    for name, why in OURS.items():
        yield name, "" if body.get(name) in (None, False, *TIERS.get(name, ())) else why
    for name, rule in endpoint.needs.items():
        yield name, rule(body[name]) if name in body else "is missing"
    if payload.provider != "gemini":
        yield "model", "" if body.get("model") in (None, model) else f"is not the payload's model, {model}"
        return
    requests: Any = body.get("requests") or ()
    for place, one in enumerate(requests):
        fits = one.get("model") == f"models/{model}"
        yield f"requests.{place}.model", "" if fits else f'must be "models/{model}"'


def _uncounted(body: Mapping[str, Any], endpoint: ModelEndpoint) -> Iterator[tuple[str, str]]:
    """Check the figures by which the call is counted."""
    bounds = [(path, MAX_OUTPUT_TOKENS) for path in endpoint.most_output]
    bounds += [(endpoint.answers, MAX_ANSWERS)] if endpoint.answers else []
    for path, most in bounds:
        told = member_at(body, path)
        fits = told is None or (type(told) is int and 1 <= told <= most)
        yield ".".join(path), "" if fits else f"must be a whole number from 1 to {most:,}"
