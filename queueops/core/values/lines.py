"""Divides text into lines, in little time even if most are blank; keeps JSON on one line for every reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

BLANK = b" \t\n\r\x0b\x0c"  # the bytes that bytes.strip() removes
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
_NOT_BLANK = re.compile(rb"[^ \t\n\r\x0b\x0c]")


def on_one_line(text: str) -> str:
    """
    Return JSON with U+0085, U+2028 and U+2029 escaped. JSON has these characters only in texts. Some readers of JSON
    lines, such as `str.splitlines` and the official clients' `iter_lines`, take them for line ends and would find two
    broken lines.
    """
    return text.translate(_LINE_ENDS)


def lines_of(text: bytes, start: int = 0) -> Iterator[bytes]:
    """
    Yield lines without their ends. Consecutive blank lines come as one piece that holds only their ends.

    Yielding a line takes about a microsecond, passing a byte about a nanosecond. Yielded one by one, 200 million blank
    lines, which 185 kB of gzip can hold, would take minutes.
    """
    while start < len(text):
        if text[start] in BLANK:
            found = _NOT_BLANK.search(text, start)
            end = len(text) if found is None else text.rfind(b"\n", start, found.start()) + 1
            if end > start:
                yield b"\n" * max(1, text.count(b"\n", start, end))
                start = end
                continue
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1
