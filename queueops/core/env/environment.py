"""
The settings that come from the environment, each declared once as data.

`read()` in reading.py checks all of them at once; docs/reference/settings.md is generated from the same
declarations. Nothing else in the project reads `os.environ` for configuration.
"""

from dataclasses import Field, dataclass, fields, replace
from typing import Any, ClassVar

from queueops.core.values import parse
from queueops.core.values.numbers import MEGABYTE

from .alerts import AlertSettings
from .database import DatabaseSettings
from .limits import LimitSettings, MoneySettings
from .retention import ResultSettings, RetentionSettings
from .setting import Setting, setting
from .signing_in import SigningInSettings, SingleSignOnSettings
from .web import WebSettings
from .workers import BatchLaneSettings, HandlerSettings, WorkerSettings


@dataclass(frozen=True, kw_only=True)
class DevelopmentSettings:
    """Settings that only development needs."""

    section: ClassVar[str] = "Development"

    sandbox_port: int = setting("Port of the local sandbox provider.", parse.PORT, default=8001)
    allow_loopback_targets: bool = setting(
        "Handlers may call 127.0.0.1, for the sandbox. Refused in production.",
        parse.BOOLEAN,
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class Environment(
    WebSettings,
    SigningInSettings,
    SingleSignOnSettings,
    DatabaseSettings,
    WorkerSettings,
    MoneySettings,
    BatchLaneSettings,
    LimitSettings,
    RetentionSettings,
    ResultSettings,
    AlertSettings,
    HandlerSettings,
    DevelopmentSettings,
):
    """The settings, as `django.conf.settings.QUEUEOPS`: `settings.QUEUEOPS.lease_seconds`."""

    @property
    def max_result_bytes(self) -> int:
        """The limit for one result, as JSON."""
        return self.result_store_max_mb * MEGABYTE if self.result_store else self.max_payload_bytes


def declared_settings() -> dict[str, tuple[Setting, Any]]:
    """Return field name -> (declaration with its variable and section filled in, default), section by section."""
    return {
        item.name: (_declaration(item, section), item.default)
        for section in Environment.__bases__
        for item in fields(section)
    }


def _declaration(item: "Field[Any]", section: Any) -> Setting:
    declared: Setting = item.metadata["setting"]
    variable = declared.variable or f"QUEUEOPS_{item.name.upper()}"
    return replace(declared, variable=variable, section=section.section)
