"""The output of `up`: lines of several processes, and a progress line that stays at the bottom of a terminal."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from typing import Protocol

NAME_WIDTH = 8
CLEAR_LINE = "\r\x1b[2K"

# A line that begins with a bar replaces the bar before it; a full bar stays.
_BAR = re.compile(r"\[#*-+\]")
_FULL_BAR = re.compile(r"\[#+\]")


class Output(Protocol):
    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...
    def isatty(self) -> bool: ...


class Console:
    """Writes `name | line` from any thread. Without a terminal every line is a line of its own."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._is_terminal = output.isatty()
        self._progress = ""

    def say(self, name: str, line: str) -> None:
        text = f"{name:<{NAME_WIDTH}} | {line}"
        with self._lock:
            if not self._is_terminal:
                self._write(text + "\n")
            elif _BAR.match(line):
                # A wrapped line could not be cleared again.
                self._progress = text[: shutil.get_terminal_size().columns - 1]
                self._write(CLEAR_LINE + self._progress)
            else:
                if _FULL_BAR.match(line):
                    self._progress = ""
                self._write(CLEAR_LINE + text + "\n" + self._progress)

    def close(self) -> None:
        """Leave the progress line where it is, if there is one."""
        with self._lock:
            if self._progress:
                self._write("\n")
                self._progress = ""

    def _write(self, text: str) -> None:
        # The terminal may have been closed; the children must be stopped in order all the same.
        with contextlib.suppress(OSError):
            try:
                self._output.write(text)
            except UnicodeEncodeError:  # otherwise the child's reader would end, and the child would block
                self._output.write(text.encode("ascii", "backslashreplace").decode())
            self._output.flush()
