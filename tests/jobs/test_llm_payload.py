import pytest
from pydantic import ValidationError

from jobs.handlers.llm import openai
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Cost, find_handler
from tests.support.cases import every_case
from tests.support.llm import payload_of


def parsed(**fields):
    return LlmGenerate.model_validate(payload_of(**fields))


@every_case(
    ("fields", "words"),
    [
        ({"prompt": None}, "exactly one of"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "exactly one of"),
        ({"prompt": ""}, "at least 1 character"),
        ({"model": "../other"}, "pattern"),
        ({"model": "modèle"}, "pattern"),
        ({"model": "m\n"}, "pattern"),
        ({"model": "a/b"}, "Gemini model"),
        ({"model": "a:countTokens"}, "Gemini model"),
        ({"model": "a?key=x", "provider": "openai"}, "pattern"),
        ({"service": "Über"}, "pattern"),
        ({"contents": [{"parts": []}]}, '"parts"'),
        ({"contents": [{"text": "x"}]}, '"parts"'),
        ({"contents": [{"parts": [{"text": "x"}]}], "provider": "openai"}, "use messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "not of the system"),
        ({"messages": [{"role": "user", "content": "x"}], "split": True}, "only a prompt"),
        ({"max_output_tokens": 0}, "greater than or equal"),
        ({"split_tokens": 5}, "greater than or equal"),
        ({"base_url": "http://evil.example"}, "not permitted"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_submitted(fields, words):
    with pytest.raises(ValidationError, match=words):
        parsed(**fields)


def test_models_of_compatible_servers_may_have_paths_for_names():
    assert parsed(provider="openai", model="meta-llama/Llama-3.1-8B:free").model == "meta-llama/Llama-3.1-8B:free"


def test_names_of_models_may_begin_with_an_at_sign_or_hold_one():
    for provider, name in (("openai", "@cf/meta/llama-3.1-8b-instruct"), ("gemini", "gemini-1.5-pro@001")):
        assert parsed(provider=provider, model=name).model == name


def test_openais_own_address_is_known_though_it_is_written_down():
    asked = parsed(provider="openai", max_output_tokens=9)
    for address, name in {
        "": "max_completion_tokens",
        "https://api.openai.com/v1": "max_completion_tokens",
        "https://eu.api.openai.com": "max_completion_tokens",
        "https://openai.example.org/v1": "max_tokens",
        "https://notapi.openai.com.example.org": "max_tokens",
    }.items():
        body = openai.compose(asked, "x", address, "key").body
        assert {field for field in body if field.startswith("max")} == {name}, address


def test_the_service_is_the_provider_unless_named():
    handler = find_handler("llm.generate")
    assert handler.service_of(parsed()) == "gemini"
    assert handler.service_of(parsed(provider="openai", service="llm")) == "llm"


def test_geminis_limits_count_input_and_others_output_too():
    assert parsed(prompt="x" * 400, max_output_tokens=50).cost() == Cost(100, units=_units(100, 50), told_output=50)
    assert parsed(provider="openai", prompt="x" * 400, max_output_tokens=50).cost() == Cost(
        100, 50, _units(100, 50), told_output=50
    )


def test_output_that_nothing_bounds_is_a_guess_and_what_the_provider_documents_of_a_model_is_a_bound():
    def asked(**fields):
        cost = parsed(prompt="x" * 400, **fields).cost()
        return cost.units["output_tokens"], cost.is_bound

    assert asked(provider="openai", model="own-1") == (1_000, False)
    assert asked(provider="openai", model="gpt-4o-2024-08-06") == (16_384, True)
    assert asked(provider="openai", model="openai/GPT-4.1-mini:free") == (32_768, True)
    assert asked(provider="openai", model="gpt-4omega") == (1_000, False)
    assert asked(provider="gemini", model="gemini-2.5-pro") == (65_536, True)
    assert asked(provider="anthropic", model="claude-x") == (1_000, True)  # it is told so
    assert asked(provider="openai", model="gpt-4o", max_output_tokens=50) == (50, True)


def test_a_tokenizer_that_takes_fewer_bytes_raises_the_estimate():
    assert parsed(prompt="日" * 100, bytes_per_token=1.5).cost() == Cost(200, units=_units(200, 1_000), is_bound=False)


def test_parts_of_white_space_alone_are_not_sent():
    payload = parsed(prompt="word " * 100 + " " * 2_000 + "end", split=True, split_tokens=100)
    assert all(part.strip() for part in payload.parts)
    assert parsed(prompt=" " * 2_000, split=True, split_tokens=100).parts == (" " * 2_000,)


def _units(known: int, output: int) -> dict[str, int]:
    return {"input_tokens": known, "output_tokens": output}
