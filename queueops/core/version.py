"""Which version and commit this is."""

import contextlib
import subprocess
from functools import cache
from pathlib import Path

VERSION = "1.0.0"

CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def commit() -> str:
    """Return the short hash of the commit that the image was built from, else of the checkout's; empty if unknown."""
    with contextlib.suppress(OSError):
        return (CHECKOUT / ".commit").read_text(encoding="utf-8").strip()
    if not (CHECKOUT / ".git").exists():  # git would otherwise answer for a repository around this directory
        return ""
    with contextlib.suppress(OSError):
        git = ("git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD")
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def full_version() -> str:
    """Return `1.0.0 (3f2a9c1)`, or `1.0.0` if no commit is known."""
    return f"{VERSION} ({found})" if (found := commit()) else VERSION
