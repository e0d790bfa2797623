"""`llm.generate` against the stand-ins of Gemini and of OpenAI-compatible servers."""

import json
from contextlib import suppress

import pytest

from jobs.handlers.errors import ProviderError
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Continue, Done, find_handler
from queueops.tenancy.secrets.credentials import OpenCredential
from tests.support.cases import every_case
from tests.support.llm import API_KEY, Progress, ask_once, ask_to_the_end, payload_of

PROVIDERS = ["gemini", "openai"]
QUESTION = "Why is the sky blue? " * 20  # 105 tokens by the stand-ins' rule


def failing(base_url, **fields):
    with pytest.raises(ProviderError) as failed:
        ask_once(base_url, **fields)
    return failed.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_question_is_answered_and_its_tokens_are_told(sandbox, provider, stream):
    done = ask_once(sandbox.url, provider=provider, prompt=QUESTION, stream=stream)
    assert isinstance(done, Done)
    assert done.result["text"].startswith("The quick brown fox")
    assert len(done.result["text"]) == 64 * 4
    assert (done.result["complete"], done.result["finish_reason"].lower()) == (True, "stop")
    assert done.result["usage"] == {"input_tokens": 105, "output_tokens": 64, "total_tokens": 169}
    assert done.result["model"] == "small-1"
    assert done.result["id"]


@pytest.mark.parametrize(("provider", "counted"), [("gemini", 105), ("openai", 105 + 64)])
def test_the_actual_cost_is_what_the_providers_limit_counts(sandbox, provider, counted):
    done = ask_once(sandbox.url, provider=provider, prompt=QUESTION)
    [used] = [quota for quota in sandbox.usage(provider) if quota["unit"] == "tokens"]
    assert done.cost == counted == used["accepted_cost"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_actual_cost_is_settled_where_the_estimate_was_wrong(sandbox, provider):
    sandbox.turn(**{provider: {"token_factor": 1.5, "output_tokens": 200}})
    done = ask_once(sandbox.url, provider=provider, prompt=QUESTION)
    assert done.cost == 158 + (200 if provider == "openai" else 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_without_usage_the_estimate_stands(sandbox, provider, stream):
    sandbox.turn(**{provider: {"missing_usage_rate": 1}})
    done = ask_once(sandbox.url, provider=provider, stream=stream)
    assert (done.cost, done.result["usage"], done.result["complete"]) == (None, None, True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_was_cut_short_says_so_and_is_no_failure(sandbox, provider):
    done = ask_once(sandbox.url, provider=provider, max_output_tokens=10)
    assert (done.result["complete"], done.result["finish_reason"]) == (
        False,
        "MAX_TOKENS" if provider == "gemini" else "length",
    )
    assert len(done.result["text"]) == 40


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_reports_its_tokens_as_they_come_in(sandbox, provider):
    sandbox.turn(**{provider: {"stream_chunks": 4, "stream_chunk_milliseconds": 20}})
    progress = Progress()
    ask_once(sandbox.url, provider=provider, stream=True, max_output_tokens=64, progress=progress)
    assert progress == sorted(progress)
    assert progress[-1] == (99, "64 tokens")
    assert (25, "16 tokens") in progress


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_ends_before_the_answer_leaves_the_outcome_unknown(sandbox, provider):
    sandbox.turn(**{provider: {"stream_cut_rate": 1, "stream_chunks": 3}})
    error = failing(sandbox.url, provider=provider, stream=True)
    if provider == "openai":  # it cuts after the last text, before the reason for its end
        assert len(sandbox.calls(provider=provider)) == 1
    assert (error.code, error.outcome, error.status) == ("stream_cut", "unknown", None)


def test_generating_may_be_repeated():
    handler = find_handler("llm.generate")
    assert handler.is_repeatable(LlmGenerate.model_validate(payload_of()))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_conversation_and_its_instruction_arrive_as_one_input(sandbox, provider):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello there, how are you?"},
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "Good."},
    ]
    done = ask_once(sandbox.url, provider=provider, messages=messages, system="You are polite.", temperature=0.2)
    whole = "You are polite." + "".join(message["content"] for message in messages)
    assert done.result["usage"]["input_tokens"] == -(-len(whole) // 4)


def test_gemini_takes_contents_of_its_own_form(sandbox):
    done = ask_once(sandbox.url, contents=[{"role": "user", "parts": [{"text": "x" * 40}]}])
    assert done.result["usage"]["input_tokens"] == 10


@pytest.mark.parametrize(
    ("provider", "knobs", "answered"),
    [
        ("gemini", {"bad_keys": ["*"]}, (400, "api_key_invalid")),
        ("gemini", {"models": ["other"]}, (404, "not_found")),
        ("gemini", {"credit_gone": True}, (402, "credit_gone")),
        ("openai", {"bad_keys": ["*"]}, (401, "invalid_api_key")),
        ("openai", {"models": ["other"]}, (404, "model_not_found")),
        ("openai", {"credit_gone": True}, (402, "credit_gone")),
    ],
)
def test_a_refusal_has_the_providers_code_and_words(sandbox, provider, knobs, answered):
    sandbox.turn(**{provider: knobs})
    error = failing(sandbox.url, provider=provider)
    assert (error.status, error.code) == answered
    assert (error.outcome, error.push_back) == ("answered", None)
    assert error.message.startswith(provider)
    assert len(error.message) > 40


@every_case("status", [400, 403, 499, 500, 503, 504])
@every_case("provider", PROVIDERS)
@every_case("stream", [False, True])
def test_a_failure_keeps_its_status(sandbox, provider, status, stream):
    sandbox.turn(error_rates={str(status): 1})
    error = failing(sandbox.url, provider=provider, stream=stream)
    assert (error.status, error.outcome, error.push_back) == (status, "answered", None)
    assert str(status) in error.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("provider", "unit"), [("gemini", "input_tokens"), ("openai", "tokens"), ("openai", "requests")]
)
def test_a_429_names_the_quota_that_had_no_room(sandbox, provider, unit, stream):
    name = "requests_per_minute" if unit == "requests" else "tokens_per_minute"
    sandbox.turn(**{provider: {name: 1}})
    with suppress(ProviderError):  # a quota of tokens lets the first call pass or not, as its provider does
        ask_once(sandbox.url, provider=provider)
    error = failing(sandbox.url, provider=provider, stream=stream)
    assert (error.status, error.outcome) == (429, "answered")
    assert error.push_back is not None
    assert [violation.unit for violation in error.push_back.violations] == [unit]
    if provider == "gemini":
        assert error.push_back.retry_after
        assert error.retry_after == error.push_back.retry_after


def test_a_429_as_a_page_names_nothing_and_is_still_a_push_back(sandbox):
    sandbox.turn(error_rates={"429": 1}, html_429=True)
    error = failing(sandbox.url)
    assert (error.status, error.code) == (429, "http_429")
    assert error.push_back is not None
    assert error.push_back.violations == ()
    assert "slow down" in error.message


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_key_is_in_no_url_no_result_and_no_error(sandbox, provider):
    done = ask_once(sandbox.url, provider=provider)
    assert all(API_KEY not in call["path"] for call in sandbox.calls())
    sandbox.turn(**{provider: {"bad_keys": ["*"]}})
    error = failing(sandbox.url, provider=provider)
    assert API_KEY not in json.dumps([done.result, error.message, error.details])


@pytest.mark.parametrize(
    ("credential", "words"),
    [
        (None, "no credential"),
        (OpenCredential("key", "openai", {"api_key": "k"}), "is for 'openai'"),
        (OpenCredential("key", "gemini", {"password": "k"}), "needs an api_key"),
        (OpenCredential("key", "gemini", {"api_key": "schlüssel"}), "needs an api_key"),
    ],
)
def test_a_credential_that_does_not_fit_is_never_shown_to_the_provider(sandbox, credential, words):
    error = failing(sandbox.url, open_credential=credential)
    assert (error.code, error.outcome, error.status) == ("credential_unusable", "refused", None)
    assert words in error.message
    assert sandbox.calls() == []


def test_a_target_that_may_not_be_called_is_refused():
    error = failing("http://169.254.169.254")
    assert (error.code, error.outcome) == ("target_refused", "refused")


def test_an_outage_is_told_as_such(sandbox):
    sandbox.turn(outage={"seconds": 600, "mode": "close"})
    error = failing(sandbox.url)
    assert (error.status, error.code, error.outcome) == (None, "connection_broken", "unknown")


DOCUMENT = "\n\n".join(f"Paragraph {number} says something of its own. " * 20 for number in range(12))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_long_document_goes_out_in_parts_each_its_own_call(sandbox, provider):
    fields = {"provider": provider, "prompt": DOCUMENT, "system": "Sum it up.", "split": True, "split_tokens": 1_000}
    done, steps = ask_to_the_end(sandbox.url, **fields)
    payload = LlmGenerate.model_validate(payload_of(**fields))
    calls = sandbox.calls(provider=provider)
    assert len(calls) == len(steps) + 1 == len(payload.parts) > 2
    assert sum(call["effects"] for call in calls) == len(calls)
    assert steps[0].message == f"part 1 of {len(calls)} is done"
    assert all(step.cost for step in steps)
    assert done.result["text"].count("\n\n") == len(calls) - 1
    assert len(done.result["parts"]) == len(calls)
    assert done.result["complete"] is True
    assert done.result["usage"]["output_tokens"] == 64 * len(calls)


def test_the_cost_of_a_document_in_parts_is_that_of_its_largest_part(sandbox):
    fields = {"prompt": DOCUMENT, "system": "Sum it up.", "split": True, "split_tokens": 1_000}
    estimate = find_handler("llm.generate").estimated_cost(LlmGenerate.model_validate(payload_of(**fields)))
    ask_to_the_end(sandbox.url, **fields)
    assert estimate.known == max(call["cost_tokens"] for call in sandbox.calls())
    assert estimate.known <= 1_000 + 3


def test_progress_of_a_document_in_parts_never_goes_back(sandbox):
    progress = Progress()
    fields = {"prompt": DOCUMENT, "split": True, "split_tokens": 1_000, "stream": True, "max_output_tokens": 64}
    ask_to_the_end(sandbox.url, progress=progress, **fields)
    assert [percent for percent, _ in progress] == sorted(percent for percent, _ in progress)
    assert progress[0][1].startswith("part 1 of ")


def test_progress_of_a_document_in_parts_is_that_of_its_parts_without_a_stream(sandbox):
    progress = Progress()
    _, steps = ask_to_the_end(sandbox.url, progress=progress, prompt=DOCUMENT, split=True, split_tokens=1_000)
    assert [message for _, message in progress] == [step.message for step in steps]
    assert [percent for percent, _ in progress] == [100 * part // (len(steps) + 1) for part in range(1, len(steps) + 1)]


def test_a_document_that_fits_into_one_part_is_one_call(sandbox):
    done, steps = ask_to_the_end(sandbox.url, prompt="Short.", split=True)
    assert (steps, "parts" in done.result) == ([], False)


@pytest.mark.parametrize("partial", [{"omitted": "too large"}, {"parts": [{}] * 500}, [1]])
def test_parts_that_were_lost_end_the_job_instead_of_beginning_again_for_ever(sandbox, partial):
    error = failing(sandbox.url, prompt=DOCUMENT, split=True, split_tokens=1_000, partial=partial)
    assert (error.code, error.outcome) == ("partial_lost", "refused")
    assert sandbox.calls() == []


def test_a_job_goes_on_with_the_part_after_those_that_are_done(sandbox):
    fields = {"prompt": DOCUMENT, "split": True, "split_tokens": 1_000}
    payload = LlmGenerate.model_validate(payload_of(**fields))
    first = ask_once(sandbox.url, **fields)
    assert isinstance(first, Continue)
    sandbox.turn(error_rates={"503": 1})
    failing(sandbox.url, partial=first.partial, **fields)
    sandbox.turn(error_rates={})
    sandbox.clear_ledger()
    second = ask_once(sandbox.url, partial=first.partial, **fields)
    assert [part["text"] for part in second.partial["parts"]] == [first.partial["parts"][0]["text"]] * 2
    [call] = sandbox.calls()
    assert call["cost_tokens"] == payload.input_tokens(payload.parts[1])
