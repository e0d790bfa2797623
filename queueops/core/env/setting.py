"""How a setting is declared."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from queueops.core.values import parse


@dataclass(frozen=True, slots=True)
class Setting:
    """
    A setting's declaration, from which error messages and docs/reference/settings.md are made.

    Attributes:
        shown_default: The text on that page for a default that is computed or long.
        secret: The value is never shown in a message.
    """

    variable: str
    section: str
    text: str
    parse: Callable[[str], Any]
    rule: str
    shown_default: str
    secret: bool


def setting(
    text: str,
    parser: parse.Parser,
    *,
    default: Any,
    variable: str = "",
    shown_default: str = "",
    secret: bool = False,
) -> Any:
    """Declare one field of a section of `Environment`; the variable is `QUEUEOPS_<FIELD>` unless named."""
    declared = Setting(variable, "", text, parser.parse, parser.rule, shown_default, secret)
    return field(default=default, metadata={"setting": declared})
