"""
Write the blocking producer from the asynchronous one, so that no code is written twice: `python generate_sync.py`.

Intended differences are in other modules (transport, line, `Spool.fill`), or are sentences below. With `--check`
nothing is written, and the program ends with 1 if the file is out of date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "src/queueops_client"
SOURCE, TARGET = PACKAGE / "async_producer.py", PACKAGE / "producer.py"
HEADER = "# Written by generate_sync.py from async_producer.py: change that one.\n"

SENTENCES = {
    "The producer's client for asyncio: submit": "The producer's client, blocking: submit",
    "Belongs to the event loop it is first used on.": "Any number of threads may share one.",
    "a function, asynchronous or not, that returns one": "a function that returns one",
}
WORDS = {
    r"\basync (def|for|with)\b": r"\1",
    r"\bawait ": "",
    r"\b__a(enter|exit)__\b": r"__\1__",
    r"\bAsync(QueueOps|Transport|Token|Line|Jobs|Iterator)\b": r"\1",
    r"\bfill_async\b": "fill",
}


def blocking(source: str) -> str:
    """
    Return the blocking module.

    Raises:
        ValueError: A sentence is missing in the source, or something asynchronous is left.
    """
    for before, after in SENTENCES.items():
        if before not in source:
            raise ValueError(f"{SOURCE.name} does not say {before!r}")
        source = source.replace(before, after)
    for pattern, word in WORDS.items():
        source = re.sub(pattern, word, source)
    if left := re.search(r"\w*(async|await)\w*", source, re.IGNORECASE):
        raise ValueError(f"nothing says what {left.group()!r} is when blocking")
    formatted = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    sorted_imports = [*formatted[:3], "check", "--select", "I", "--fix", "--quiet", *formatted[4:]]
    for command in (sorted_imports, formatted):
        ran = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
        source = ran.stdout
    return HEADER + source


if __name__ == "__main__":
    wanted = blocking(SOURCE.read_text(encoding="utf-8"))
    if "--check" in sys.argv[1:]:
        sys.exit(int(TARGET.read_text(encoding="utf-8") != wanted))
    TARGET.write_text(wanted, encoding="utf-8")
