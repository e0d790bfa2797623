"""`llm.embed`: a text as a vector. Waiting texts for one model leave together, as one call."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from jobs.handlers.errors import ProviderError, Used
from jobs.handlers.http.answers import storable
from jobs.handlers.llm import errors as llm_errors
from jobs.handlers.llm.access import key_of
from jobs.handlers.llm.asking import ASKS_A_MODEL, ask, credential_of
from jobs.handlers.llm.dialect import ModelRequest, with_options
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.requests.payload import (
    CALL_SECONDS,
    BytesPerToken,
    CallSeconds,
    ModelPayload,
    Text,
)
from jobs.handlers.llm.tokens import BYTES_PER_TOKEN, count_tokens
from jobs.handlers.off_loop import off_loop
from jobs.handlers.registry import Bisect, Coalesce, Cost, Done, RunningJob, handler
from ratelimits.costs import INPUT_TOKENS, OUTPUT_TOKENS, Usage

from .endpoints import ENDPOINTS, MAX_GEMINI_INPUTS

# OpenAI takes 300,000 tokens in a call, and a token has at least two bytes on average; see wire-facts.md.
MAX_BYTES_TOGETHER = 600_000
OF_ONE_INPUT = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY})
NO_VECTOR, NO_NUMBERS = "no_vector", "an embedding is no list of numbers"
_NOT_A_NUMBER = re.compile(r"unsupported value: (?:NaN|[+-]Inf)")
_ENDPOINTS = {"openai": "/v1/embeddings", "gemini": "batchEmbedContents"}
OURS = frozenset({"model", "input", "content", "requests", "dimensions", "outputDimensionality", "encoding_format"})


class LlmEmbed(ModelPayload):
    """One text that becomes a vector. Unknown fields are refused."""

    provider: Literal["openai", "gemini"] = Field(
        description="Whose protocol is spoken; openai: any compatible server."
    )
    input: Text
    dimensions: int | None = Field(default=None, ge=1, le=100_000, description="None: as many as the model has.")
    encoding: Literal["float", "base64"] = Field(
        default="float",
        description="float: a list of numbers. base64: floats of 32 bits, little-endian, a quarter of the size.",
    )
    options: dict[str, JsonValue] | None = Field(
        default=None, description="Fields of the provider's own request, such as Gemini's taskType."
    )
    bytes_per_token: BytesPerToken = BYTES_PER_TOKEN
    timeout_seconds: CallSeconds = CALL_SECONDS

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if why := DIALECTS[self.provider].refuses_model(self.model):
            raise ValueError(f"model: {why}")
        if ours := next((name for name in self.options or {} if name in OURS), None):
            raise ValueError(f"options: {ours} is a field of the payload")
        json.dumps(self.options, allow_nan=False)
        return self

    @property
    def alike(self) -> str:
        """Everything that must be equal for the texts of one call."""
        return json.dumps(
            [self.provider, self.service, self.model, self.dimensions, self.encoding, self.options], sort_keys=True
        )

    def cost(self) -> Cost:
        tokens = count_tokens(self.input, bytes_per_token=self.bytes_per_token)
        return Cost(tokens, units={INPUT_TOKENS: tokens, OUTPUT_TOKENS: 0})

    def most(self) -> Usage:
        """The most tokens that the text can have: no tokenizer makes more tokens of a text than it has bytes."""
        return Usage(len(self.input.encode()), 0, 0, written_1h_tokens=0)


@handler(
    kind="llm.embed",
    payload=LlmEmbed,
    cost=LlmEmbed.cost,
    most=LlmEmbed.most,
    coalesce=Coalesce(
        key=lambda payload: payload.alike,
        max_items=MAX_GEMINI_INPUTS,
        max_bytes=MAX_BYTES_TOGETHER,
        counts_each=True,
    ),
    **ASKS_A_MODEL,
)
async def embed(jobs: Sequence[RunningJob[LlmEmbed]]) -> Sequence[Done | ProviderError]:
    """
    Make a vector of a text. Waiting texts for one model leave together, as one call: one request of the provider's
    quota, and the tokens of each. A text of which the model makes no vector fails alone.
    """
    first, payload = jobs[0], jobs[0].payload
    credential = credential_of(first)
    endpoint = ENDPOINTS[payload.provider][_ENDPOINTS[payload.provider]]
    key = key_of(payload.service_name, credential)
    url, headers = endpoint.address(credential.base_url, key, payload.model)
    request = ModelRequest(url, headers, _body([job.payload for job in jobs]))
    try:
        reader, secrets = await ask(first, endpoint.dialect, request, seconds=payload.timeout_seconds)
    except ProviderError as error:
        makes_none = _makes_no_vector(error)
        if (makes_none or error.status in OF_ONE_INPUT) and len(jobs) > 1:
            raise Bisect from error  # the provider refuses one of the texts and does not say which
        if makes_none:
            status = HTTPStatus.BAD_REQUEST.value
            raise ProviderError(status, error.message, code=NO_VECTOR, outcome="answered") from error
        raise
    answer, service = reader.answer, payload.service_name
    used = endpoint.dialect.cost(answer), answer.used()
    vectors = await off_loop(_vectors, answer.vectors or [], payload, used, size=100 * len(jobs) * 1_000)
    if len(vectors) != len(jobs):
        what = f"{len(jobs)} texts were sent, and {len(vectors)} vectors came back"
        raise llm_errors.malformed(service, what, used=used)
    uses = _shares(answer.used(), [job.payload.cost().known for job in jobs])
    if all(vector is None for vector in vectors):
        raise llm_errors.malformed(service, NO_NUMBERS, used=used)
    return [
        Done(storable({**vector, "model": answer.model}, secrets), usage=usage) if vector else _without(service, usage)
        for vector, usage in zip(vectors, uses, strict=True)
    ]


def _makes_no_vector(error: ProviderError) -> bool:
    """Whether a server found no numbers for one text, which Ollama says with a 500; each attempt would say the same."""
    return error.status == HTTPStatus.INTERNAL_SERVER_ERROR and _NOT_A_NUMBER.search(error.message) is not None


def _without(service: str, usage: Usage | None) -> ProviderError:
    """Return the error of a text whose vector is none, while others of its call have theirs."""
    return llm_errors.malformed(service, NO_NUMBERS, used=(None if usage is None else usage.tokens, usage))


def _body(payloads: Sequence[LlmEmbed]) -> dict[str, Any]:
    first = payloads[0]
    if first.provider == "openai":
        sized = {} if first.dimensions is None else {"dimensions": first.dimensions}
        texts = [payload.input for payload in payloads]
        body = {"model": first.model, "input": texts, **sized, "encoding_format": first.encoding}
        return with_options(body, first.options)
    sized = {} if first.dimensions is None else {"outputDimensionality": first.dimensions}
    return {
        "requests": [
            {
                "model": f"models/{first.model}",
                "content": {"parts": [{"text": payload.input}]},
                **sized,
                **(first.options or {}),
            }
            for payload in payloads
        ]
    }


def _vectors(told: Sequence[Any], payload: LlmEmbed, used: Used) -> list[dict[str, Any] | None]:
    """
    Read the vectors in the order of the texts, None for an entry that is no vector; OpenAI's may have an `index`.

    Raises:
        ProviderError: Nobody can tell which text an entry is of.
    """
    name = "embedding" if payload.provider == "openai" else "values"
    entries = [one if isinstance(one, dict) else {} for one in told]
    if all(type(one.get("index")) is int for one in entries):
        entries.sort(key=lambda one: one["index"])
        places = {one["index"] for one in entries}
        # Servers that ask for each text apart call each of them 0.
        if len(places) > 1 and places != set(range(len(entries))):
            what = "its embeddings have places that no text has, or one twice"
            raise llm_errors.malformed(payload.service_name, what, used=used)
    return [_vector(one.get(name), payload) for one in entries]


def _vector(value: Any, payload: LlmEmbed) -> dict[str, Any] | None:
    if isinstance(value, str) and payload.encoding == "base64":
        return {"embedding": value, "dimensions": len(value.rstrip("=")) * 3 // 4 // 4}
    if not isinstance(value, list) or not all(isinstance(one, int | float) for one in value):
        return None  # some servers write null for what is not a number
    if payload.encoding == "float":
        return {"embedding": value, "dimensions": len(value)}
    return {"embedding": b64encode(struct.pack(f"<{len(value)}f", *value)).decode(), "dimensions": len(value)}


def _shares(used: Usage | None, estimates: Sequence[int]) -> list[Usage | None]:
    """Divide a call's usage among its texts in proportion to their estimates; the shares sum up to the whole."""
    if used is None or used.input_tokens is None:
        return [used if place == 0 else None for place in range(len(estimates))]
    until = [used.input_tokens * one // max(1, sum(estimates)) for one in accumulate(estimates)]
    tokens = [end - begin for begin, end in zip([0, *until[:-1]], until, strict=True)]
    return [Usage(count, used.cached_tokens and 0, 0, count) for count in tokens]
