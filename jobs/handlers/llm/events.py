"""Server-sent events, read as they come in (WHATWG HTML, 9.2.6), without reconnecting."""

from __future__ import annotations

import codecs
import re

_LINE_END = re.compile(r"\r\n|\n|\r")


class EventReader:
    """Feed it the pieces of a stream, cut anywhere; it returns the data of each event that is complete."""

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
        if self._after_return and text.startswith("\n"):  # a line end cut in two
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
        """Return what came without the empty line that ends an event: some servers leave out the last."""
        events = self.feed(b"\n\n")
        self._data = []
        return events

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
