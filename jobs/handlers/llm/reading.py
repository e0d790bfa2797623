"""Reading an answer into a Generation, whole or as it comes in."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from jobs.handlers.errors import UNTOLD, ProviderError, Used

from . import errors as llm_errors
from .dialect import Dialect, Generation

_LOOKS_LIKE_EVENTS = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry|):")
_LINE_END = re.compile(r"\r\n|\n|\r")
_HEARTBEATS = frozenset({"ping", "keepalive", "heartbeat"})


class EventReader:
    """
    Reads server-sent events as they come in (WHATWG HTML, 9.2.6), without reconnecting.

    Feed it the pieces of a stream, cut anywhere; it returns the data of each event that is complete.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line: list[str] = []  # joined only at a line's end: a long line may come in many pieces
        self._data: list[str] = []
        self._after_return = False

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that end in this piece."""
        text = self._decoder.decode(piece)
        if not text:
            return []
        if self._after_return and text.startswith("\n"):  # the pieces were cut within a line end
            text = text[1:]
        self._after_return = text.endswith("\r")
        *lines, rest = _LINE_END.split(text)
        events = []
        for end in lines:
            line = "".join([*self._line, end])
            self._line = []
            if line:
                self._take(line)
            elif self._data:
                events.append("\n".join(self._data))
                self._data = []
        if rest:
            self._line.append(rest)
        return events

    def end(self) -> list[str]:
        """Return the data of an unfinished event: some servers leave out the empty line after the last event."""
        events = self.feed(b"\n\n")
        self._data = []
        return events

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))


class AnswerReader:
    """
    Reads one answer of a provider into `answer`.

    Every method raises ProviderError for an error inside the answer, and for an answer that cannot be read.
    """

    def __init__(self, dialect: Dialect, *, service: str, secrets: tuple[str, ...]) -> None:
        self.answer = Generation()
        self._dialect, self._service, self._secrets = dialect, service, secrets
        self._events = EventReader()
        self.whole: Any = None  # an answer that is no stream, as it came
        self._is_stream = False
        self._saw_end = False

    @property
    def has_ended(self) -> bool:
        """Whether the text is complete, even if the connection breaks now; its usage may still be missing."""
        return self.answer.finish_reason is not None and (self._saw_end or self._dialect.reason_is_last)

    @property
    def is_complete(self) -> bool:
        """Whether reading may stop though the server keeps the stream open: the end mark or the counts have come."""
        counted = self._dialect.reason_is_last and "output_tokens" in self.answer.usage
        return self._saw_end or (self.answer.finish_reason is not None and counted)

    def take(self, piece: bytes) -> None:
        """Read the next piece of a stream."""
        self._absorb_events(self._events.feed(piece))

    def end(self, body: bytes) -> None:
        """End a stream that came in as `body`; a server that does not stream has sent it as a whole."""
        self._absorb_events(self._events.end())
        if not self._is_stream:
            self.take_whole(body)
        elif self.answer.failed:
            raise self._broken_off()
        elif self.answer.finish_reason is None and not (self._saw_end and self.answer.has_content):
            # Without its end mark, a stream may have counted a part of its answer alone.
            raise llm_errors.cut(self._service, used=self._counted() if self._saw_end else UNTOLD)

    def take_whole(self, body: bytes) -> None:
        """Read an answer that is no stream: one object, or Gemini's array of what a stream sends as events."""
        try:
            parsed = self.whole = json.loads(body)
        except (ValueError, RecursionError):
            if not self._is_stream and _LOOKS_LIKE_EVENTS.match(body):
                self._take_unasked(body)
                return
            raise llm_errors.malformed(self._service, "the answer is no JSON") from None
        self.answer.is_whole = True
        for event in parsed if isinstance(parsed, list) else [parsed]:
            self._absorb(event)
        answer = self.answer
        if answer.failed:
            raise self._broken_off()
        if not answer.has_content and answer.finish_reason is None and answer.vectors is None:
            what = "the answer holds neither text, nor a call of a tool, nor a reason for its end"
            raise llm_errors.malformed(self._service, what, used=self._counted())

    def _take_unasked(self, body: bytes) -> None:
        """Read a stream that came although none was asked for, as some gateways send it."""
        self.take(body)
        self.end(b"")

    def _absorb_events(self, events: list[str]) -> None:
        for data in events:
            self._is_stream = True
            if not data.strip():
                continue  # a gateway keeps the connection open
            if data.strip() == self._dialect.end_of_stream:
                self._saw_end = True
                continue
            try:
                event = json.loads(data)
            except (ValueError, RecursionError):
                if "\n" not in data:
                    raise llm_errors.malformed(self._service, "an event of the stream is no JSON") from None
                self._absorb_events(data.split("\n"))  # some servers leave out the empty line between events
                continue
            if not _is_heartbeat(event):
                self._absorb(event)

    def _absorb(self, event: Any) -> None:
        error = llm_errors.error_in(event)
        if error:
            if isinstance(event, dict) and self._dialect.knows(event):
                self._dialect.absorb(self.answer, event)  # the counts beside the error are paid for
            raise self._failed(error)
        if not isinstance(event, dict):
            raise llm_errors.malformed(self._service, "the answer is no object")
        if not self._dialect.knows(event):
            if refused := llm_errors.refusal_in(event):  # Cloudflare and iFlow refuse under status 200
                raise self._failed(refused)
            if self.answer.is_whole:
                self._dialect.absorb(self.answer, event)  # what it counts is paid for, whatever its form
            used = self._counted() if self.answer.is_whole else UNTOLD
            raise llm_errors.malformed(self._service, "the answer is of no known form", used=used)
        self._dialect.absorb(self.answer, event)

    def _broken_off(self) -> ProviderError:
        """Return the error of an answer that failed, and whose provider does not say why."""
        reason = self.answer.finish_reason
        return self._failed({"code": "response_failed", "message": reason and f"the answer ended with {reason}"})

    def _failed(self, error: dict[str, Any]) -> ProviderError:
        dialect, used = self._dialect, self._used()
        return llm_errors.error_event(error, dialect=dialect, service=self._service, secrets=self._secrets, used=used)

    def _used(self) -> Used:
        return self._dialect.cost(self.answer), self.answer.used()

    def _counted(self) -> Used:
        """Return what an answer without content states. Zeros state nothing: its request had an input."""
        return self._used() if self.answer.usage.get("input_tokens") else UNTOLD


def _is_heartbeat(event: Any) -> bool:
    """Whether an event of a stream says nothing; OpenAI's long responses have such events, and gateways add them."""
    return event == {} or (isinstance(event, dict) and event.get("type") in _HEARTBEATS)
