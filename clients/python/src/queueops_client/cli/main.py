"""The command `queueops`: where it starts, and how errors end it."""

from __future__ import annotations

import os
import sys


def main() -> None:
    try:
        from queueops_client.cli.commands import run
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        sys.exit("The command queueops needs click and rich: pip install 'queueops-client[cli]'")
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has had enough; without this the interpreter complains when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
