"""The command `queueops`: where it starts, and how errors end it."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> None:
    try:
        from queueops_client.cli.commands import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        sys.exit("The command queueops needs click and rich: pip install 'queueops-client[cli]'")
    except KeyboardInterrupt:  # while the modules were read
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has had enough; without this the interpreter complains when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1  # as click does where it meets this first
    sys.exit(code)
