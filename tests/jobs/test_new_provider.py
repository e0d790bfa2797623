"""A new provider of language models is a file with its dialect, and a line in jobs/handlers/llm/providers.py."""

from __future__ import annotations

import asyncio
import runpy
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from jobs.handlers.http.connections import close
from jobs.handlers.llm import generate as llm
from jobs.handlers.llm import openai, providers
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.batches.openai import OpenAiBatches
from jobs.handlers.llm.native.payload import LlmCall
from jobs.handlers.registry import Done, RunningJob
from tests.support.llm import credential_for, payload_of

# It speaks as OpenAI does, but for what it counts, wants to be told, and refuses.
PLANTED = replace(
    openai.OPENAI,
    picture_tokens=7,
    stated_output=50,
    counts_output=False,
    refuses=lambda payload: "Planted takes no seed" if payload.seed is not None else "",
    refuses_model=lambda model: "Planted has no such model" if model == "none" else "",
    batches=OpenAiBatches(endpoint="/v1/chat/completions"),
)


def test_a_new_provider_is_a_file_and_a_line(monkeypatch, sandbox):
    monkeypatch.setitem(providers.DIALECTS, "planted", PLANTED)
    payloads = runpy.run_module("jobs.handlers.llm.requests.payload", run_name="planted", alter_sys=True)
    given = payload_of(provider="planted", model="small-1")
    payload = payloads["LlmGenerate"].model_validate(given)
    assert (payload.stated_output, payload.cost().unknown) == (50, 0)
    contents = {name: value for name, value in given.items() if name != "prompt"} | {"contents": [{"parts": []}]}
    with pytest.raises(ValidationError, match="contents are Gemini's"):
        payloads["LlmGenerate"].model_validate(contents)
    for wrong, why in (({"seed": 1}, "Planted takes no seed"), ({"model": "none"}, "Planted has no such model")):
        with pytest.raises(ValidationError, match=why):
            payloads["LlmGenerate"].model_validate({**given, **wrong})
    with pytest.raises(ValidationError, match="'gemini', 'openai', 'anthropic' or 'planted'"):
        payloads["LlmGenerate"].model_validate({**given, "provider": "other"})
    assert batch_form(providers.DIALECTS).api_of(payload, "") == "planted"

    async def carry_out() -> object:
        job = RunningJob(
            id=UUID(int=1),
            payload=payload,
            project="acme",
            user_id=None,
            effect_key="effect-1",
            attempt=1,
            report=lambda percent, message: None,
            credential=credential_for(payload, sandbox.url),
            partial=None,
        )
        try:
            return await llm.generate(job)
        finally:
            await close()

    answer = asyncio.run(carry_out())
    assert isinstance(answer, Done)
    assert answer.result["complete"]


def test_a_call_in_the_own_words_of_a_provider_that_has_none_is_refused():
    for endpoint in (None, "/v1/planted"):
        call: Any = LlmCall.model_construct(
            provider="planted", credential="key", model="small-1", endpoint=endpoint, body={}
        )
        with pytest.raises(ValueError, match="is none that is known of planted; known: none"):
            call._fits_together()
