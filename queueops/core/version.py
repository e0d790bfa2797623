"""Which version this is, and of which commit."""

import contextlib
import subprocess
from functools import cache
from pathlib import Path

VERSION = "1.0.0"

CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def commit() -> str:
    """Return the commit, short: what the image was built with, else the checkout's; empty where neither is known."""
    with contextlib.suppress(OSError):
        return (CHECKOUT / ".commit").read_text(encoding="utf-8").strip()
    if not (CHECKOUT / ".git").exists():  # else a checkout around this one would answer
        return ""
    with contextlib.suppress(OSError):
        git = ("git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD")
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def full_version() -> str:
    """`1.0.0 (3f2a9c1)`, or without a commit `1.0.0`."""
    return f"{VERSION} ({found})" if (found := commit()) else VERSION
