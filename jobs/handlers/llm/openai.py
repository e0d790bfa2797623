"""Chat completions, as OpenAI and the many servers compatible with it answer them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from jobs.handlers.google.refusals import read_details
from queueops.tenancy.models import CredentialSetting
from ratelimits.feedback import (
    DAY_SECONDS,
    MINUTE_SECONDS,
    STATED_UNITS,
    PushBack,
    Violation,
    bounded_delay,
    cap_of,
    error_of,
    is_of_a_quota,
    refusal_in_headers,
    short_text,
    wait_told,
)
from ratelimits.quota_names import QuotaName, read_quota_name, read_unit
from ratelimits.rate_headers import StatedQuota, read_units

from . import anthropic, gemini
from .dialect import (
    Dialect,
    ErrorWords,
    Generation,
    ModelRequest,
    codes_of,
    phrases,
    with_options,
)

if TYPE_CHECKING:
    from jobs.handlers.llm.requests.payload import LlmGenerate, Turn

BASE_URL = "https://api.openai.com/v1"
MAX_OPENAI_STOPS = 4
OPENAI_HOST = "api.openai.com"
AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")

Takes = CredentialSetting.Takes
INSTEAD = {
    "max_tokens": Takes.MAX_COMPLETION_TOKENS,
    "max_completion_tokens": Takes.MAX_TOKENS,
    "stream_options": Takes.NO_STREAM_OPTIONS,
}
REFUSES_FIELDS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
MAX_READ = 20_000
_NOT_TAKEN = re.compile(
    r"unsupported[ _]parameter|not supported|extra[ _]inputs?|extra_forbidden|un(?:known|recognized|expected)[ _]"
    r"|not (?:permitted|allowed)|does not exist",
    re.IGNORECASE,
)
_THOUGHTS = ("reasoning_content", "reasoning")  # DeepSeek and most others; vLLM, OpenRouter and Ollama
_TEXTS = frozenset({"text", "output_text"})  # parts of a content
# OpenRouter, relays; vLLM, SGLang; DeepSeek; Z.ai: the server broke the answer off, and another attempt may bring it.
_BROKEN_OFF = re.compile(r"error(?:_.*)?|abort|insufficient_system_resource|network_error")
# An OpenAI-compatible gateway may stand before any provider, and passes on that provider's error messages.
WORDS = ErrorWords(
    too_long_codes=frozenset(
        {"context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded"}
    ),
    # OpenAI, SGLang; Azure; llama.cpp; Mistral; vLLM; SGLang, Together; LiteLLM; xAI; Moonshot; MiniMax; LM Studio;
    # Ollama, Fireworks; Bedrock; Perplexity; DashScope; TGI, Together; Cerebras, Groq; Poolside; GLM; Cohere;
    # llama-cpp-python. GitHub Models; Voyage; LM Studio.
    too_long=phrases(
        r"maximum context length (?:is|of|has been exceeded)\b",
        r"input tokens exceed the configured limit",
        r"exceeds the available context size",
        r"too large for model with \d+ maximum context length",
        r"longer than the (?:maximum model|model'?s context) length",
        r"context ?window ?exceeded",
        r"maximum prompt length is \d",
        r"exceeded model token limit",
        r"context window exceeds limit",
        r"greater than the context length",
        r"\bprompt (?:is )?too long\b",
        r"input is too long for requested model",
        r"length of all messages is too long",
        r"range of input length should be",
        r"`?\binputs`? (?:tokens \+ `?max_new_tokens`? must be|must have less than) ",
        r"reduce the length of (?:the|your) (?:messages|input|prompt)\b",
        r"exceeds the maximum allowed input length",
        r"tokens in request more than max tokens allowed",
        r"prompt exceeds max length",
        r"too many tokens: [^.]{0,100}cannot exceed \d",
        r"exceed(?:s|ed)? (?:the |this model )?context window\b",
        r"request body too large for [^.]{1,100} model\b",
        r"max allowed tokens per submitted batch is \d",
        r"loaded with context length of only \d",
    ),
    no_credit_codes=frozenset(
        {
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
            "exceeded_current_quota_error",
            "insufficient_balance_error",
            "insufficient_balance",
            "insufficient_user_quota",
            "personal-team-blocked:spending-limit",
            "Arrearage",
            "AccountOverdueError",
            "budget_exceeded",
            "pre_consume_token_quota_failed",
        }
    ),
    # xAI, three times; DashScope; Moonshot; SiliconFlow and gateways; OpenRouter; Fireworks; new-api; LiteLLM.
    no_credit=phrases(
        r"used all available credits or reached its monthly spending limit",
        r"teams? doesn't have any credits",
        r"you have run out of credits",
        r"make sure your account is in good standing",
        r"suspended due to insufficient balance",
        r"\bbalance is insufficient",
        r"^key limit exceeded\b",
        r"is suspended, possibly due to reaching the monthly spending limit",
        r"\bTokenStatusExhausted\b",
        r"\bbudget has been exceeded\b",
    ),
    # Ark; Databricks.
    no_quota=phrases(r"reached the set inference limit for the", r"disabled due to a Databricks-set rate limit of 0\b"),
    comes_back=phrases(r"error-code#token-limit"),  # DashScope's tokens a minute, as `insufficient_quota`
    account_codes=frozenset({"account_deactivated"}),
    blocked_codes=frozenset(
        {
            "content_filter",
            "content_policy_violation",
            "ResponsibleAIPolicyViolation",
            "data_inspection_failed",
            "hooks_failed",  # Portkey's guardrails
        }
    ),
    # Azure; DeepSeek; xAI; DashScope; OpenAI; OpenRouter; Z.ai, Zhipu; Ark; new-api.
    blocked=phrases(
        r"triggering Azure OpenAI's content management policy",
        r"\bcontent exists risk\b",
        r"content violates usage guidelines",
        r"may contain inappropriate content",
        r"flagged as potentially violating our usage policy",
        r"\byour input was flagged\b",
        r"potentially unsafe or sensitive content|可能包含不安全或敏感内容",
        r"text may contain sensitive information",
        r"\binput contains sensitive words\b",
    ),
    passing=phrases(r"^model unloaded\b", r"^the model has crashed\b"),  # LM Studio loads it again
    misfit_codes=frozenset({"json_validate_failed", "tool_use_failed", "output_parse_failed"}),  # Groq
).beside(anthropic.WORDS, gemini.WORDS)
_LIMIT_IN_MESSAGE = re.compile(r" on ((?:requests|tokens) per (?:min|day)[^:.]{0,40})[:.](?: Limit:? ([0-9]{1,30}))?")
_REQUESTED = re.compile(r"[ ,]Requested:? ~?([0-9]{1,30})")
# OpenAI and OpenRouter; LiteLLM. They are parts of the input.
OF_INPUT = {
    "cached_tokens": "cached_tokens",
    "cache_write_tokens": "cache_written_tokens",
    "cache_creation_tokens": "cache_written_tokens",
}
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens")  # Moonshot's and DeepSeek's names, beside the other counts
_OF_ANTHROPIC = {"cache_read_input_tokens": "cached_tokens", "cache_creation_input_tokens": "cache_written_tokens"}
_COUNTS = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
_COUNTS_OF_OTHERS = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}  # gateways, beside or instead


def compose(payload: LlmGenerate, part: str | None, base_url: str, api_key: str) -> ModelRequest:
    turns = [{"role": turn.role, "content": _content(turn, payload)} for turn in payload.turns(part)]
    body: dict[str, Any] = {"model": payload.model, "messages": turns}
    if payload.max_output_tokens is not None:
        # OpenAI's newer models refuse `max_tokens`; most other servers take no other name.
        name = "max_completion_tokens" if is_openai(base_url) or is_azure(base_url) else "max_tokens"
        body[name] = payload.max_output_tokens
    named = {
        "temperature": payload.temperature,
        "top_p": payload.top_p,
        "seed": payload.seed,
        "stop": payload.stop,
        "reasoning_effort": payload.reasoning,
    }
    body |= {name: value for name, value in named.items() if value is not None}
    if payload.answer_schema is not None:
        strict = {"strict": True} if is_strict(payload.answer_schema) else {}
        form = {"name": "answer", "schema": payload.answer_schema, **strict}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    if payload.tools:
        body["tools"] = [{"type": "function", "function": tool.as_dict("parameters")} for tool in payload.tools]
    body = with_options(body, payload.options)
    if payload.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return ModelRequest(*address("/chat/completions", base_url, api_key, payload.model), body)


def address(path: str, base_url: str, api_key: str, model: str) -> tuple[str, dict[str, str]]:
    """Return where a call goes, and its headers; `path`: what follows the API's root."""
    if is_azure(base_url):
        return _azure_url(base_url, model, path), {"api-key": api_key}
    return f"{root_of(base_url)}{path}", {"Authorization": f"Bearer {api_key}"}


def _content(turn: Turn, payload: LlmGenerate) -> str | list[dict[str, Any]]:
    """Return the turn's text, or parts if pictures come before the text."""
    if not turn.has_pictures:
        return turn.content
    pictures = [{"type": "image_url", "image_url": {"url": one.data_url}} for one in payload.pictures or ()]
    return [*pictures, {"type": "text", "text": turn.content}]


def is_strict(schema: Any) -> bool:
    """Whether OpenAI takes a schema as strict: each object names all its properties as required and allows no other."""
    if isinstance(schema, list):
        return all(is_strict(one) for one in schema)
    if not isinstance(schema, dict):
        return True
    if isinstance(properties := schema.get("properties"), dict):
        required = schema.get("required")
        names_all = isinstance(required, list) and set(map(str, required)) == properties.keys()
        if schema.get("additionalProperties") is not False or not names_all:
            return False
    elif schema.get("type") == "object":
        return False
    return all(is_strict(one) for name, one in schema.items() if name not in ("enum", "const", "default", "examples"))


def adapt(body: Mapping[str, Any], takes: frozenset[str]) -> Mapping[str, Any]:
    """Return the body with the names and options that the server takes."""
    changed = dict(body)
    for name, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
        if other in takes and name not in takes and name in changed:
            changed[other] = changed.pop(name)
    if Takes.NO_STREAM_OPTIONS in takes:
        changed.pop("stream_options", None)
    return changed


def learn(status: int, body: bytes, sent: Mapping[str, Any]) -> str:
    """
    Return what a server takes instead of the field that it refuses by name; empty: it refuses none, or several.

    If only a field's value is refused, such as a max_tokens that is too large, the server does take the field.
    """
    text = body[:MAX_READ].decode(errors="replace")
    if status not in REFUSES_FIELDS or not _NOT_TAKEN.search(text):
        return ""
    named = [field for field in INSTEAD if field in sent and re.search(rf"\b{field}\b", text)]
    return INSTEAD[named[0]].value if len(named) == 1 else ""


def absorb(answer: Generation, event: dict[str, Any]) -> None:
    """Take the first choice: a whole message, or what a stream's chunk adds to it."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(choice, dict) and answer.is_of(choice.get("index")):
        message = _message_in(choice, is_whole=answer.is_whole)
        if isinstance(message, dict):
            _add_content(answer, message.get("content"))
            answer.refuse(message.get("refusal"))
            answer.thought |= any(isinstance(message.get(name), str) and message[name] != "" for name in _THOUGHTS)
            # OpenAI's older models have one `function_call` instead.
            _add_calls(answer, message.get("tool_calls") or [{"function": message.get("function_call")}])
            answer.has_media |= bool(message.get("audio") or message.get("images"))  # OpenAI; OpenRouter
        reason = choice.get("finish_reason")
        answer.failed |= isinstance(reason, str) and _BROKEN_OFF.fullmatch(reason) is not None
        answer.note(finish_reason=reason)
        _count(answer, choice.get("usage"))
    answer.note(model=event.get("model"), answer_id=event.get("id"), tier=event.get("service_tier"))
    _count(answer, event.get("usage"))
    if isinstance(groq := event.get("x_groq"), dict):
        _count(answer, groq.get("usage"))
        answer.failed |= bool(groq.get("error"))  # why the stream was stopped early


def _message_in(choice: Mapping[str, Any], *, is_whole: bool) -> Any:
    """Return a choice's message, or what a chunk adds to it. Perplexity sends both, and one of them empty or so far."""
    told = [choice.get("message"), choice.get("delta")]
    return next((one for one in (told if is_whole else reversed(told)) if isinstance(one, dict)), None)


def _add_content(answer: Generation, content: Any) -> None:
    """Add a text, or the parts that Mistral sends, of which the thoughts are left out."""
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if isinstance(part, dict) and part.get("type") in _TEXTS:
            answer.add_text(part.get("text"))
        answer.thought |= isinstance(part, dict) and part.get("type") == "thinking"


def _add_calls(answer: Generation, calls: Any) -> None:
    """Add tool calls, whole or in pieces; the `index` of a stream's piece says to which call it belongs."""
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            index = call.get("index", place)
            at, call_id = index if type(index) is int else place, call.get("id")
            name, arguments = function.get("name"), function.get("arguments")
            _set_apart(answer, at, name=name, call_id=call_id)
            answer.add_call(at, name=name, call_id=call_id, arguments=arguments)


def _set_apart(answer: Generation, at: int, *, name: Any, call_id: Any) -> None:
    """Keep the call at an index under another key if a new call begins there: some servers number every call 0."""
    known = answer.calls.get(at)
    if known is not None and known.id and name and call_id and call_id != known.id:
        answer.calls = {(at, len(answer.calls)) if key == at else key: one for key, one in answer.calls.items()}


def _count(answer: Generation, usage: Any) -> None:
    """
    Take the usage of an answer or of a choice. xAI has reasoning only in the total: output is total less input.

    Some gateways before Anthropic leave out of the prompt what was read from a cache or written into it: that is input.
    Portkey has it in the total; LiteLLM in none of them, so that it may exceed the prompt.
    """
    answer.count(usage, _COUNTS)
    answer.count(usage, _COUNTS_OF_OTHERS)
    if isinstance(usage, dict):
        count_thoughts(answer, usage.get("completion_tokens_details"))
        details = usage.get("prompt_tokens_details")
        answer.count(details, OF_INPUT)
        if isinstance(details, dict):  # LiteLLM passes on Anthropic's own counts
            answer.count(details.get("cache_creation_token_details"), anthropic.OF_CACHE_CREATION)
        for name in _CACHED:
            answer.count(usage, {name: "cached_tokens"})
        answer.count(usage, _OF_ANTHROPIC)
    told = answer.usage
    if told.keys() >= {"input_tokens", "output_tokens", "total_tokens"}:
        of_cache = told.get("cached_tokens", 0) + told.get("cache_written_tokens", 0)
        counted = told["input_tokens"] + told["output_tokens"]
        if of_cache and (told["total_tokens"] == counted + of_cache or of_cache > told["input_tokens"]):
            told["input_tokens"] += of_cache
            told["total_tokens"] = counted + of_cache
        told["output_tokens"] = max(told["output_tokens"], told["total_tokens"] - told["input_tokens"])


def count_thoughts(answer: Generation, details: Any) -> None:
    """Note from the details of the output whether some of it was thoughts. The output's count includes them."""
    counted = details.get("reasoning_tokens") if isinstance(details, dict) else None
    answer.thought |= isinstance(counted, int | float) and counted > 0


def knows(event: dict[str, Any]) -> bool:
    """Whether the object is an answer or a chunk of one; a chunk may come without choices, or with null."""
    is_chunk = event.get("object") == "chat.completion.chunk"
    return is_chunk or isinstance(event.get("choices"), list) or isinstance(event.get("usage"), dict)


def cost(answer: Generation) -> int | None:
    """Return input and output tokens together."""
    usage = answer.counts
    if "total_tokens" in usage:
        return usage["total_tokens"]
    if "input_tokens" in usage and "output_tokens" in usage:
        return usage["input_tokens"] + usage["output_tokens"]
    return None


def is_openai(base_url: str) -> bool:
    """Whether the address is OpenAI's own; an empty address means OpenAI, too."""
    host = urlsplit(base_url or BASE_URL).hostname or ""
    return host == OPENAI_HOST or host.endswith(f".{OPENAI_HOST}")  # regional hosts, such as the EU's, are subdomains


def is_azure(base_url: str) -> bool:
    """Whether the address is of Azure, which takes another header and other paths."""
    return (urlsplit(base_url).hostname or "").endswith(AZURE_HOSTS)


def _azure_url(base_url: str, model: str, after: str) -> str:
    """Return the URL. An address without a path gets one: the model's deployment if it has a query, else the v1 API."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if not path:
        path = f"/openai/deployments/{quote(model, safe='')}" if parts.query else "/openai/v1"
    return urlunsplit(parts._replace(path=f"{path}{after}", fragment=""))


def root_of(base_url: str) -> str:
    """Return the URL of the API's root."""
    root = (base_url or BASE_URL).rstrip("/")
    return root if urlsplit(root).path else f"{root}/v1"


def parse_openai(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """
    Read a refusal of an OpenAI-compatible server from its message and its `x-ratelimit-*` headers, or from headers that
    are common to many APIs, see `rate_headers`.

    The headers are used only if they make sense together: a limit above zero, no more left than the limit, a reset
    that is a time. A header's limit states no period, so it is taken for a cap only if all of it is back within a
    minute.

    Returns:
        None if the refusal concerns no quota, or if a 429 says that the credit is used up.
    """
    if not is_of_a_quota(status, headers, body):
        return None
    error = error_of(body)
    message = short_text(error.get("message"), most=10_000)
    if codes_of(error) & WORDS.no_credit_codes and WORDS.has_no_credit(codes_of(error), message):
        return None
    headers = {**_headers_in(error), **headers}
    gauges = [quota for quota in read_units(headers) if quota.remaining is not None]
    violation = _violation(error, message, gauges)
    gauge = _gauge_of(violation, gauges) if violation else None
    retry_after = wait_told(headers, error, message) or (bounded_delay(gauge.reset_seconds or 0.0) if gauge else None)
    found = refusal_in_headers(headers, retry_after)
    violations = found.violations if violation is None else (violation,)
    if not _LIMIT_IN_MESSAGE.search(message) and read_quota_name(message).period == "day":
        violations = tuple(replace(one, per_day=True) for one in violations or (Violation(scope="project"),))
    return PushBack(violations, found.retry_after)


def parse_compatible(status: int, headers: Mapping[str, str], body: bytes) -> PushBack | None:
    """Read a refusal of a server that speaks OpenAI's form, but may pass on Google's details, as Gemini itself does."""
    google = read_details(status, headers, body)
    if google is None or google.violations:
        return google
    other = parse_openai(status, headers, body)
    return other and PushBack(other.violations, other.retry_after or google.retry_after)


def _headers_in(error: Mapping[str, Any]) -> dict[str, str]:
    """Return the rate headers that OpenRouter writes into the body instead, as `metadata.headers`."""
    metadata = error.get("metadata")
    told = metadata.get("headers") if isinstance(metadata, dict) else None
    found = told.items() if isinstance(told, dict) else ()
    return {name: str(value) for name, value in found if isinstance(value, str | int | float)}


def _violation(error: dict[str, Any], message: str, gauges: Sequence[StatedQuota]) -> Violation | None:
    said = _LIMIT_IN_MESSAGE.search(message)
    read = read_quota_name(said[1]) if said else QuotaName()
    unit = read.unit or read_unit(message, (short_text(error.get("code")), short_text(error.get("type"))))
    spent = [gauge for gauge in gauges if not gauge.remaining and (not unit or gauge.unit == unit)]
    if not unit and len(spent) == 1:
        unit = STATED_UNITS.get(spent[0].unit, "requests")
    if not unit:
        return None
    gauge = spent[0] if len(spent) == 1 else _gauge_of(Violation(unit=unit), gauges)
    per_day = read.period == "day" or (not said and gauge is not None and gauge.window_seconds == DAY_SECONDS)
    cap = cap_of(said[2]) if said else None
    if not said and gauge and not per_day and _is_of_a_minute(gauge):
        cap = gauge.capacity
    name = short_text(said[1]).strip() if said else unit
    asked = _REQUESTED.search(message) if said else None
    requested = cap_of(asked[1]) if asked else None
    return Violation(
        name=name,
        scope="project",
        unit=unit,
        per_day=per_day,
        stated_cap=cap,
        requested=requested if requested and cap and requested > cap else None,
    )


def _gauge_of(violation: Violation, gauges: Sequence[StatedQuota]) -> StatedQuota | None:
    """Return what headers say of the violated quota; if several have its unit, the quota without room is taken."""
    of_unit = [gauge for gauge in gauges if gauge.unit == violation.unit]
    return min(of_unit, key=lambda gauge: (bool(gauge.remaining), gauge.window_seconds or 0.0), default=None)


def _is_of_a_minute(gauge: StatedQuota) -> bool:
    """Whether a header's limit is a minute's. If the header states no period, all of it must be back in a minute."""
    if gauge.window_seconds is not None:
        return gauge.window_seconds == MINUTE_SECONDS
    return gauge.reset_seconds is not None and gauge.reset_seconds <= MINUTE_SECONDS


def refuses(payload: LlmGenerate) -> str:
    return (
        f"OpenAI takes at most {MAX_OPENAI_STOPS} texts in stop" if len(payload.stop or ()) > MAX_OPENAI_STOPS else ""
    )


def models(base_url: str, api_key: str) -> tuple[str, dict[str, str]] | None:
    return None if is_azure(base_url) else (f"{root_of(base_url)}/models", {"Authorization": f"Bearer {api_key}"})


OPENAI = Dialect(
    compose=compose,
    absorb=absorb,
    knows=knows,
    cost=cost,
    push_back=parse_compatible,
    words=WORDS,
    end_of_stream="[DONE]",
    adapt=adapt,
    learn=learn,
    picture_tokens=1_105,
    refuses=refuses,
    models=models,
)
