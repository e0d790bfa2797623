"""The part that all providers of language models share: a request, and an answer that may come in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ratelimits.costs import MAX_TOKENS_OF_A_CALL, TIERS, Usage
from ratelimits.feedback import PushBack

from .tokens import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from jobs.handlers.batch_form import BatchApi
    from jobs.handlers.llm.requests.payload import LlmGenerate

MAX_WORD = 200
ACCOUNT_DEACTIVATED = "account_deactivated"  # OpenAI's code of a closed account, and ours for others that have words
# In lower case; `eos`, `eos_token` and `complete` come from OpenAI-compatible servers.
_FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed"})
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded", "model_length"})
_FINISHED_BY_CALLS = frozenset({"tool_calls", "tool_use", "function_call"})
# In lower case: the same prompt is blocked again. Gemini's RECITATION and OTHER may not come back.
_BLOCKED = frozenset(
    {
        "content_filter",
        "refusal",
        "safety",
        "blocklist",
        "prohibited_content",
        "spii",
        "image_safety",
        "image_prohibited_content",
        "sensitive",  # Zhipu, Tencent
        "guardrail_intervened",  # Bedrock through gateways, twice
        "content_filtered",
    }
)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """
    A request as it is sent. The key is in the headers, never in the URL.

    Attributes:
        written: The body as JSON text, if its producer's own text is kept; None: `body` is written as JSON.
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)
    written: str | None = field(default=None, repr=False)

    @property
    def content(self) -> bytes:
        text = json.dumps(self.body, separators=(",", ":")) if self.written is None else self.written
        return text.encode()


@dataclass(slots=True)
class ToolCall:
    """
    A call of a tool that the model asks for.

    Attributes:
        pieces: Pieces of the arguments' JSON text, as a stream brings them.
        whole: The arguments as an object, if the answer has them in that form.
    """

    name: str | None = None
    id: str | None = None
    pieces: list[str] = field(default_factory=list)
    whole: Any = None

    def told(self) -> dict[str, Any]:
        """Return the call for a result; arguments that are no JSON stay text."""
        arguments, text = self.whole, "".join(self.pieces)
        if text:
            try:
                arguments = json.loads(text)
            except (ValueError, RecursionError):
                arguments = text
        return {"name": self.name, "arguments": {} if arguments is None else arguments, "id": self.id}


@dataclass(slots=True)
class Generation:
    """
    An answer as far as it has come in.

    Attributes:
        finish_reason: As the provider says it; None: the answer goes on.
        usage: `input_tokens`, `output_tokens`, `total_tokens` and others, as far as the provider states them.
        calls: The tools that the model wants called, by their place in the answer.
        refused: The model said in a field of its own that it will not answer.
        tier: The service tier that the provider says it used, in its own word.
        thought: It has thoughts, or the provider counted some. They are output that is no part of the text.
        failed: The provider says that it failed; what went wrong may follow.
        vectors: The content of an answer without text, embeddings or verdicts of a moderation, in the input's order.
        has_media: It has a picture, a sound or a program, which are no text.
        is_whole: It is no stream.
        choice: Which of several answers it is, by the number that a stream gives the first of them to come.
    """

    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    model: str | None = None
    id: str | None = None
    tier: str | None = None
    calls: dict[Any, ToolCall] = field(default_factory=dict)
    refused: bool = False
    thought: bool = False
    failed: bool = False
    vectors: list[Any] | None = None
    has_media: bool = False
    is_whole: bool = False
    choice: int | None = None
    _bytes: int = 0

    def is_of(self, index: Any) -> bool:
        """Whether a piece is of the answer that came first; a stream of several brings their pieces by turns."""
        if type(index) is not int:
            return True
        self.choice = index if self.choice is None else self.choice
        return index == self.choice

    def add_text(self, text: Any) -> None:
        if isinstance(text, str):
            self.pieces.append(text)
            self._bytes += len(text.encode(errors="replace"))

    def refuse(self, text: Any) -> None:
        """Take what the model says instead of an answer, if it says anything."""
        self.refused |= isinstance(text, str) and bool(text)
        self.add_text(text)

    def add_call(self, place: Any, *, name: Any = None, call_id: Any = None, arguments: Any = None) -> None:
        """Take a call of a tool, or a piece of its arguments, which come as text or whole."""
        call = self.calls.setdefault(place, ToolCall())
        call.name = _word(name) or call.name
        call.id = call.id or _word(call_id)  # some servers give each piece another
        if isinstance(arguments, str):
            call.pieces.append(arguments)
            self._bytes += len(arguments.encode(errors="replace"))
        elif arguments is not None:
            call.whole = arguments

    def note(self, *, finish_reason: Any = None, model: Any = None, answer_id: Any = None, tier: Any = None) -> None:
        """Take each value that is a text, cut to MAX_WORD; providers also send null."""
        self.finish_reason = _word(finish_reason) or self.finish_reason
        self.model = _word(model) or self.model
        self.id = _word(answer_id) or self.id
        self.tier = _word(tier) or self.tier

    def count(self, usage: Any, names: Mapping[str, str]) -> None:
        """Take the whole numbers of a usage object, which are cumulative; `names`: the provider's names to ours."""
        if isinstance(usage, dict):
            for theirs, name in names.items():
                number: Any = usage.get(theirs)
                if type(number) in (int, float) and 0 <= number <= MAX_TOKENS_OF_A_CALL and number == int(number):
                    self.usage[name] = max(int(number), self.usage.get(name, 0))  # some servers write 12.0

    @property
    def counts(self) -> dict[str, int]:
        """The usage without zeros for what there is: a server that does not count, or has not yet, states zeros."""
        has_output = self._bytes or (self.thought and not self.usage.get("thinking_tokens"))
        there = ("input_tokens", "output_tokens", "total_tokens") if has_output else ()
        return {name: number for name, number in self.usage.items() if number or name not in there}

    def used(self) -> Usage | None:
        """Return the provider's counts by unit; None: it stated none. Thoughts count as output."""
        found = self.counts
        if not found:
            return None
        output, tier = found.get("output_tokens"), (self.tier or "").lower()
        return Usage(
            input_tokens=found.get("input_tokens"),
            cached_tokens=found.get("cached_tokens"),
            output_tokens=None if output is None else output + found.get("thinking_tokens", 0),
            tokens=found.get("total_tokens"),
            written_tokens=found.get("cache_written_tokens"),
            written_1h_tokens=found.get("cache_written_1h_tokens"),
            tier=tier if tier in TIERS else "",
        )

    @property
    def is_blocked(self) -> bool:
        """Whether the model refused, or the provider held the answer back."""
        return self.refused or (self.finish_reason or "").lower() in _BLOCKED

    @property
    def has_content(self) -> bool:
        return bool(self.pieces or self.calls)

    @property
    def is_cut(self) -> bool:
        """Whether the answer ended at its most output tokens."""
        return (self.finish_reason or "").lower() in _CUT

    @property
    def hint(self) -> str:
        """Why an answer has thoughts alone."""
        if self.is_cut:
            return "its thoughts used up all its output: raise max_output_tokens, or ask for less reasoning"
        return "it ended after its thoughts: ask again, or for less reasoning"

    @property
    def tokens_so_far(self) -> int:
        return round(self._bytes / BYTES_PER_TOKEN)

    @property
    def text(self) -> str:
        # A character beyond the BMP may arrive as two JSON escapes in two pieces.
        joined = "".join(self.pieces)
        return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def result(self, *, keeps_media: bool = False) -> dict[str, Any]:
        """Return the answer as results have it; `keeps_media`: the result has the provider's whole answer, too."""
        text, reason = self.text, self.finish_reason or ""
        calls = [call.told() for call in self.calls.values()]
        finished = _FINISHED | _FINISHED_BY_CALLS if calls else _FINISHED
        is_empty = not (text or calls or (keeps_media and self.has_media))
        return {
            "text": text,
            "finish_reason": self.finish_reason,
            "complete": not is_empty and reason.lower() in finished,
            **({"empty": True} if is_empty else {}),
            **({"hint": self.hint} if is_empty and self.thought else {}),
            **({"tool_calls": calls} if calls else {}),
            "usage": self.usage or None,
            "model": self.model,
            "id": self.id,
        }


def with_options(body: dict[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a body with fields of the provider's own added; an object in both has the fields of both."""
    found = dict(body)
    for name, value in (options or {}).items():
        before = found.get(name)
        found[name] = with_options(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def phrases(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Compile patterns for messages; they ignore the case of letters."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """
    The codes and phrases of a provider's errors that say more than their status; sources: docs/reference/wire-facts.md.

    Attributes:
        too_long_codes: Codes for an input that is too long for the model.
        too_long: Phrases of messages that say so.
        no_credit_codes: Codes for an account whose credit is used up.
        no_credit: Phrases of messages that say so.
        no_quota: Phrases of messages that say that the account has no quota at all for the model.
        comes_back: Phrases of messages about a quota that comes back, though their code is one of `no_credit_codes`.
        closed: Phrases of messages that say that the account or key is closed.
        account_codes: Codes, in lower case, for a closed account or key: every other request gets the same answer.
        blocked_codes: Codes for a request whose content the provider does not take.
        blocked: Phrases of messages that say so.
        passing: Phrases of messages about a fault of the server, though their status is one of the request.
        misfit_codes: Codes for an answer of the model that the provider found not to fit what was asked for.
    """

    too_long_codes: frozenset[str] = frozenset()
    too_long: tuple[re.Pattern[str], ...] = ()
    no_credit_codes: frozenset[str] = frozenset()
    no_credit: tuple[re.Pattern[str], ...] = ()
    no_quota: tuple[re.Pattern[str], ...] = ()
    comes_back: tuple[re.Pattern[str], ...] = ()
    closed: tuple[re.Pattern[str], ...] = ()
    account_codes: frozenset[str] = frozenset()
    blocked_codes: frozenset[str] = frozenset()
    blocked: tuple[re.Pattern[str], ...] = ()
    passing: tuple[re.Pattern[str], ...] = ()
    misfit_codes: frozenset[str] = frozenset()

    def has_no_credit(self, codes: set[str], message: str) -> bool:
        """Whether an error with these codes says that the credit is used up."""
        if codes & self.no_credit_codes:
            return not any(one.search(message) for one in self.comes_back)
        return any(one.search(message) for one in self.no_credit)

    def beside(self, *others: ErrorWords) -> ErrorWords:
        """Return these words together with the others' words."""
        joined = ErrorWords()
        for words in (self, *others):
            every = {one.name: (getattr(joined, one.name), getattr(words, one.name)) for one in fields(ErrorWords)}
            joined = ErrorWords(
                **{name: a | b if isinstance(a, frozenset) else a + b for name, (a, b) in every.items()}
            )
        return joined


def codes_of(error: Mapping[str, Any]) -> set[str]:
    """Return the codes of an error object: its own, its type, Anthropic's `details.error_code`, Azure's inner one."""
    nested = ((error.get("details"), "error_code"), (error.get("innererror"), "code"))
    inner = [one.get(name) for one, name in nested if isinstance(one, dict)]
    return {code for code in (error.get("code"), error.get("type"), *inner) if isinstance(code, str)}


@dataclass(frozen=True, slots=True)
class Dialect:
    """
    How requests to one kind of provider are written, and how its answers are read.

    Attributes:
        compose: (payload, part, base_url, api_key) -> what to send; an empty base_url is the public one.
        adapt: (body, takes) -> the body for a server that takes other fields; `takes`: `CredentialSetting.Takes`.
        learn: (status, body, what was sent) -> what a refusal says that the server takes instead; empty: nothing.
        absorb: Takes one answer, or one event of a stream, into a Generation.
        knows: Whether an object is such an answer or event; any other is an error, `malformed_answer`.
        cost: What the provider's limits counted for the call; None: the answer does not say.
        push_back: (status, headers, body) -> the quotas that were exceeded; None: it is no refusal of a quota.
        words: The codes and phrases of its errors that say more than their status.
        end_of_stream: The data of the event that ends a stream; None: there is no such event.
        reason_is_last: Whether the finish reason comes only with the last text. Gemini may send one in every event.
        picture_tokens: The most tokens of a picture that is not cut up; sources in docs/reference/wire-facts.md.
        stated_output: The maximum of output tokens to state if the payload has none; None: it may be left out.
        counts_output: Whether its limits of tokens count output, too.
        takes_contents: Whether it takes `contents`, in Gemini's form.
        refuses: (payload) -> what the provider is known to refuse of it; empty: nothing.
        refuses_model: (model) -> why the provider has no model of that name; empty: it may have one.
        models: (base_url, api_key) -> the address that lists its models, and its headers, to try a key; None: there is
            no known way to ask that server.
        batches: Its batch API.
    """

    compose: Callable[[LlmGenerate, str | None, str, str], ModelRequest]
    absorb: Callable[[Generation, dict[str, Any]], None]
    knows: Callable[[dict[str, Any]], bool]
    cost: Callable[[Generation], int | None]
    push_back: Callable[[int, Mapping[str, str], bytes], PushBack | None]
    words: ErrorWords
    end_of_stream: str | None = None
    reason_is_last: bool = True
    adapt: Callable[[Mapping[str, Any], frozenset[str]], Mapping[str, Any]] = lambda body, takes: body
    learn: Callable[[int, bytes, Mapping[str, Any]], str] = lambda status, body, sent: ""
    picture_tokens: int = 0
    stated_output: int | None = None
    counts_output: bool = True
    takes_contents: bool = False
    refuses: Callable[[LlmGenerate], str] = lambda payload: ""
    refuses_model: Callable[[str], str] = lambda model: ""
    models: Callable[[str, str], tuple[str, dict[str, str]] | None] = lambda base_url, api_key: None
    batches: BatchApi | None = None


def _word(value: Any) -> str | None:
    return value[:MAX_WORD] if isinstance(value, str) and value else None
