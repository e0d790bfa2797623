"""
Takes the results out of an answer of Gemini as it comes in.

An operation has all results of its batch, twice. The results of a large batch would not fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jobs.handlers.errors import ProviderError

MAX_RESULT_BYTES = 25_000_000
MAX_REST_BYTES = 50_000_000

_MARK = re.compile(rb'["\[\]{}]')
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)  # up to the quote that ends the text, past escaped quotes
_LIST_BEGINS = re.compile(rb'"inlinedResponses"\s*:\s*\[\Z')
_LOOKED_BACK = 100  # bytes before a bracket, for the name of its list


class Inlined:
    """
    Splits a JSON text, fed in pieces, into the objects in lists named `inlinedResponses` and the rest.

    Args:
        take: Called with the JSON text of each result. An object that is too large is passed on empty. Later lists
            repeat the first that has results, and are left out.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._rest, self._result = bytearray(), bytearray()
        self._ends = bytearray()  # the brackets that close what is open, the outermost first
        self._list_depth = 0  # the depth of the open list of results; 0: none is open
        self._is_in_text = False
        self._skipped = 0  # bytes of the next piece that a backslash at this one's end escapes
        self._has_results = False
        self._is_taken = False  # a list that has results has ended

    def feed(self, piece: bytes) -> None:
        """
        Raises:
            ProviderError: The part without the results is too large to be kept.
        """
        begin, at = 0, self._end_of_text(piece, self._skipped)
        while mark := _MARK.search(piece, at):
            at = mark.end()
            match mark.group():
                case b'"':
                    self._is_in_text = True
                    at = self._end_of_text(piece, at)
                case b"[" | b"{":
                    begin = self._open(piece, begin, at)
                case _:
                    begin = self._close(piece, begin, at)
        self._keep(piece[begin:])

    @property
    def has_given_all(self) -> bool:
        """Whether what follows has no results but those that `take` was given."""
        return self._is_taken

    def rest(self) -> bytes:
        """Return the JSON text without the results: their lists are empty."""
        return bytes(self._rest)

    def head(self) -> bytes | None:
        """Return the JSON text before the results that are being read, with what is open closed; None: none are."""
        ends = self._ends[: self._list_depth]
        return bytes(self._rest + ends[::-1]) if ends else None

    def _end_of_text(self, piece: bytes, at: int) -> int:
        """Return the place behind the text that is open at this place; the piece's end if the text goes on."""
        self._skipped = 0
        found = _TEXT.match(piece, at) if self._is_in_text else None
        if found is None:
            return at
        end = found.end()
        self._skipped = int(piece[end:] == b"\\")
        self._is_in_text = piece[end : end + 1] != b'"'
        return len(piece) if self._is_in_text else end + 1

    def _open(self, piece: bytes, begin: int, end: int) -> int:
        """Note the open bracket before `end`. Return, as `_close` does, from where on the piece is not kept yet."""
        self._ends += b"}" if piece[end - 1 : end] == b"{" else b"]"
        if self._list_depth:
            if self._ends[-1:] != b"}" or len(self._ends) != self._list_depth + 1:
                return begin
            self._result.clear()
            return end - 1
        before = self._rest[-_LOOKED_BACK:] + piece[max(begin, end - _LOOKED_BACK) : end]
        if _LIST_BEGINS.search(before):
            self._keep(piece[begin:end])
            self._list_depth = len(self._ends)
            return end
        return begin

    def _close(self, piece: bytes, begin: int, end: int) -> int:
        is_result = 0 < self._list_depth == len(self._ends) - 1 and piece[end - 1 : end] == b"}"
        if is_result:
            self._keep(piece[begin:end])
            self._give()
            begin = end
        del self._ends[-1:]
        if len(self._ends) < self._list_depth:
            self._list_depth, self._is_taken = 0, self._has_results
            begin = end - 1
        return begin

    def _keep(self, part: bytes) -> None:
        if not self._list_depth:
            self._rest += part
            if len(self._rest) > MAX_REST_BYTES:
                raise ProviderError(None, "the answer is too large", code="malformed_answer", outcome="unknown")
        elif len(self._ends) > self._list_depth and len(self._result) <= MAX_RESULT_BYTES:
            self._result += part

    def _give(self) -> None:
        if not self._is_taken:
            self._take(bytes(self._result) if len(self._result) <= MAX_RESULT_BYTES else b"")
            self._has_results = True
