"""The environment that deploy/make_env.py makes."""

from __future__ import annotations

import subprocess
import sys

from tests.support.deployment import DEPLOY


def make_environment(*arguments: str) -> dict[str, str]:
    """As systemd, Compose and kubectl read it, where they agree: no quotes, no escapes, no continued lines."""
    # Isolated: it must do with what every Python has.
    command = (sys.executable, "-I", "-S", str(DEPLOY / "make_env.py"), *arguments)
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in made.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)
