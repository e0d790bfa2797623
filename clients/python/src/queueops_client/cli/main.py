"""The command `queueops`: where it starts, and how errors end it."""

from __future__ import annotations

import io
import os
import sys

INTERRUPTED = 130


def main() -> None:
    _speak_utf8()
    try:
        from queueops_client.cli.commands import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        sys.exit("The command queueops needs click and rich: pip install 'queueops-client[cli]'")
    except KeyboardInterrupt:  # pressed while the modules were imported
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of the output closed the pipe. Without this the interpreter reports an error when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1  # as click does if it catches this error first
    sys.exit(code)


def _speak_utf8() -> None:
    """
    Write files and pipes in UTF-8, in any locale and on Windows, without its second line break after each row of CSV.

    A terminal, and who sets PYTHONIOENCODING, has another encoding. A character that it lacks must not end a command.
    """
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream.isatty() or "PYTHONIOENCODING" in os.environ:
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="")
