"""Documents in parts whose answers become one: by a template, by one more call, or by both."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from jobs.features.forecast.submission import forecast_submission
from jobs.handlers.llm.batches.form import batch_form
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Continue, Done, find_handler
from jobs.models import Job
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from jobs.testing import drain
from sandbox.llm import count_tokens
from tests.support.cases import every_case
from tests.support.documents import PROJECT, Model
from tests.support.http_server import serving
from tests.support.llm import ask, ask_once, ask_to_the_end, payload_of

PROVIDERS = ["gemini", "openai", "anthropic"]
DOCUMENT = "\n\n".join(f"Paragraph {number} says something of its own. " * 20 for number in range(12))
ASKED = {"prompt": DOCUMENT, "system": "Sum it up.", "split": True, "split_tokens": 1_000, "max_output_tokens": 64}
REDUCE = {"system": "Make one summary of these."}
SCHEMA = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}


def parsed(**fields: Any) -> LlmGenerate:
    return LlmGenerate.model_validate(payload_of(**ASKED | fields))


def recorded(**fields: Any) -> tuple[Done, list[dict[str, Any]]]:
    """The answer of a server that numbers its answers, and the bodies that it was sent."""
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        text = f"answer {len(bodies)} {{text}}" if "response_format" not in bodies[-1] else '{"total": 7}'
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        return web.json_response({"id": f"a{len(bodies)}", "choices": [choice], "usage": usage})

    async def scenario() -> Done:
        async with serving(answer) as url:
            partial = None
            while isinstance(step := await ask(url, partial=partial, provider="openai", **fields), Continue):
                partial = step.partial
            return step

    return asyncio.run(scenario()), bodies


def test_a_template_gives_each_answer_its_form_and_makes_no_call():
    done, bodies = recorded(**ASKED, combine={"template": "## {number} of {count}\n{text}"})
    count = len(parsed().parts)
    assert len(bodies) == count > 2
    assert done.result["text"] == "\n\n".join(f"## {n} of {count}\nanswer {n} {{text}}" for n in range(1, count + 1))
    one, bodies = recorded(**ASKED | {"prompt": "Short."}, combine={"template": "-> {text}"})
    assert (one.result["text"], len(bodies), len(one.result["parts"])) == ("-> answer 1 {text}", 1, 1)


def test_one_more_call_reads_the_answers_and_gives_the_results_answer():
    done, bodies = recorded(**ASKED, combine={**REDUCE, "template": "<{number}>{text}"}, pictures=None)
    count = len(parsed().parts)
    assert len(bodies) == count + 1
    system, asked = bodies[-1]["messages"]
    assert system == {"role": "system", "content": REDUCE["system"]}
    assert asked["content"] == "\n\n".join(f"<{n}>answer {n} {{text}}" for n in range(1, count + 1))
    assert {body["messages"][0]["content"] for body in bodies[:-1]} == {"Sum it up."}
    assert done.result["text"] == f"answer {count + 1} {{text}}"
    assert done.result["usage"] == {
        "input_tokens": 10 * (count + 1), "output_tokens": 3 * (count + 1), "total_tokens": 13 * (count + 1)
    }  # fmt: skip
    assert [part["id"] for part in done.result["parts"]] == [f"a{n}" for n in range(1, count + 1)]


def test_a_schema_is_asked_of_the_combining_call_alone():
    done, bodies = recorded(**ASKED, combine=REDUCE, schema=SCHEMA)
    assert [("response_format" in body) for body in bodies] == [False] * (len(bodies) - 1) + [True]
    assert done.result["data"] == {"total": 7}


def test_a_document_of_one_part_is_combined_as_well():
    done, bodies = recorded(**ASKED | {"prompt": "Short."}, combine=REDUCE, schema=SCHEMA)
    assert len(bodies) == 2
    assert done.result["data"] == {"total": 7}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_call_has_more_input_than_its_cost_and_its_bound_say(sandbox, provider):
    sandbox.turn(**{provider: {"output_tokens": 64}})
    payload = parsed(provider=provider, combine=REDUCE)
    cost = payload.cost()
    done, steps = ask_to_the_end(sandbox.url, **ASKED, provider=provider, combine=REDUCE)
    assert cost.calls == len(steps) + 1 == len(payload.parts) + 1
    usages = [step.usage for step in steps] + [done.usage]
    inputs = [usage.input_tokens for usage in usages if usage is not None and usage.input_tokens is not None]
    assert len(inputs) == cost.calls
    assert max(inputs) <= cost.known
    assert sum(inputs) <= cost.units["input_of_calls"]
    most = payload.most().input_tokens
    assert most is not None
    assert most >= max(inputs)


def test_the_combining_call_counts_with_the_longest_that_all_answers_may_be():
    """Many parts with long answers: the last call is the largest of all."""
    payload = parsed(combine=REDUCE, max_output_tokens=5_000)
    parts = len(payload.parts)
    bare = count_tokens(REDUCE["system"] + "\n\n".join(f"Part {n} of {parts}:\n" for n in range(1, parts + 1)))
    assert payload.cost().known == pytest.approx(parts * 5_000 + bare, abs=2)
    assert payload.cost().units["input_of_calls"] > payload.cost().known + parsed().cost().units["input_of_calls"] - 100


def test_a_failed_combining_call_is_asked_again_alone(sandbox):
    count = len(parsed().parts)
    _, steps = ask_to_the_end(sandbox.url, **ASKED, combine=REDUCE)
    sandbox.clear_ledger()
    done = ask_once(sandbox.url, partial=steps[-1].partial, **ASKED, combine=REDUCE)
    assert isinstance(done, Done)
    assert (len(sandbox.calls()), len(steps)) == (1, count)
    with pytest.raises(Exception, match="could not be kept"):
        ask_once(sandbox.url, partial={"parts": [steps[0].partial["parts"][0]] * (count + 1)}, **ASKED, combine=REDUCE)


def test_it_goes_live_also_where_it_has_one_part():
    form = batch_form(DIALECTS)
    assert form.api_of(parsed(prompt="Short."), "") == "gemini"
    assert form.api_of(parsed(prompt="Short.", combine={"template": "{text}"}), "") == ""


@every_case(
    ("fields", "words"),
    [
        ({"combine": {}}, "give template, system or both"),
        ({"combine": {"template": "no place"}}, "template needs {text}"),
        ({"combine": {"template": "{text}" * 2_000}}, "at most 10000 characters"),
        ({"combine": {"system": ""}}, "at least 1 character"),
        ({"combine": {"prompt": "x"}}, "Extra inputs"),
        ({"combine": REDUCE, "split": False}, "combine is for the answers to parts"),
        ({"combine": REDUCE, "max_output_tokens": None}, "combine.system needs max_output_tokens"),
        ({"combine": {"template": "{text}"}, "schema": SCHEMA}, "schema is for one answer"),
        ({"combine": REDUCE, "tools": [{"name": "t"}]}, "tools is for one answer"),
    ],
)
def test_what_cannot_be_combined_is_refused_when_it_is_submitted(fields, words):
    with pytest.raises(ValidationError) as refused:
        parsed(**fields)
    assert words in str(refused.value)


@pytest.mark.django_db
def test_its_forecast_and_its_row_count_the_combining_call(sandbox):
    model = Model("openai", 60, late_seconds=0.5, headroom_percent=1)
    model.set_up(sandbox)
    asked = {"split": True, "split_tokens": 1_000, "max_output_tokens": 64}
    plain, combined = model.line(DOCUMENT, **asked), model.line(DOCUMENT, **asked, combine=REDUCE)
    without, told = (forecast_submission([line], project_id=PROJECT) for line in (plain, combined))
    parts = len(LlmGenerate.model_validate(plain["payload"]).parts)
    more = told.tokens["input_tokens"].known - without.tokens["input_tokens"].known
    assert parts * 64 < more < parts * 64 + 100
    submit_batch([combined], project_id=PROJECT, actor="key:test")
    job = Job.objects.get()
    assert job.costs is not None
    assert job.costs["calls"] == parts + 1
    drain(seconds=60)
    job.refresh_from_db()
    assert (job.status, job.retry_count) == (JobState.COMPLETED, 0)
    assert len(sandbox.calls()) == parts + 1
    assert job.result is not None
    assert len(job.result["parts"]) == parts
    assert json.dumps(job.result)
    assert find_handler("llm.generate").batch is not None
