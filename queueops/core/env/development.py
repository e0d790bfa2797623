"""Settings that only development needs."""

from dataclasses import dataclass
from typing import ClassVar

from queueops.core.values import parse

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class DevelopmentSettings:
    section: ClassVar[str] = "Development"

    sandbox_port: int = setting("Port of the local sandbox provider.", parse.PORT, default=8001)
    allow_loopback_targets: bool = setting(
        "Handlers may call 127.0.0.1, for the sandbox. Refused in production.",
        parse.BOOLEAN,
        default=False,
    )
