"""Reading the environment: everything at once, and all that is wrong with it in one message."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queueops.core.errors import QueueOpsError

from .environment import Environment, declared_settings
from .rules import broken_rules
from .setting import Setting


class BadConfiguration(QueueOpsError):
    """The environment holds values that QueueOps cannot start with."""

    code = "bad_configuration"
    status = 500

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("QueueOps cannot start:\n" + "\n".join(f"  - {line}" for line in problems))


# Of the command `queueops`, which may be set in the same shell.
OF_THE_CLIENT = frozenset({"QUEUEOPS_URL", "QUEUEOPS_KEY", "QUEUEOPS_KEY_FILE"})


def read(environ: Mapping[str, str], *, default_data_dir: Path) -> Environment:
    """
    Read every setting once.

    A variable that is set but empty counts as unset, as compose files write it.

    Raises:
        BadConfiguration: Names every bad key with its rule and value, not only the first.
    """
    values: dict[str, Any] = {"data_dir": default_data_dir}
    problems: list[str] = []
    variables = set()
    for name, (declared, _) in declared_settings().items():
        variables.add(declared.variable)
        given = environ.get(declared.variable, "").strip()
        if not given:
            continue
        try:
            values[name] = declared.parse(given)
        except ValueError:
            problems.append(_problem(declared, given))
    problems += [
        f"{key} is not a setting (docs/reference/settings.md lists them)"
        for key in sorted(environ)
        if key.startswith("QUEUEOPS_") and key not in variables | OF_THE_CLIENT
    ]
    # Rules between settings are checked on what could be read, so that all problems show at once.
    found = Environment(**values)
    problems += broken_rules(found, given=frozenset(values))
    if problems:
        raise BadConfiguration(problems)
    return found


def _problem(declared: Setting, given: str) -> str:
    shown = "(not shown)" if declared.secret else repr(given)
    return f"{declared.variable} must be {declared.rule}; it is {shown}"
