"""Reads all settings from the environment, and reports everything that is wrong in one message."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
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


SAME_BUT_FOR_SLIPS = 0.93  # similarity of two names, by difflib; below it, no misspelling is suspected
# Variables of the command `queueops`, which may be set in the same shell.
OF_THE_CLIENT = frozenset({"QUEUEOPS_URL", "QUEUEOPS_KEY", "QUEUEOPS_KEY_FILE", "QUEUEOPS_CREDENTIAL"})


def read(environ: Mapping[str, str], *, default_data_dir: Path) -> Environment:
    """
    Read every setting once.

    A variable with an empty value counts as unset, because compose files write unset variables that way. An unknown
    variable stops the start only if its name resembles a setting's. Any other may be a setting of a later version, left
    over after a downgrade: `check`, `doctor` and the web process's start list it.

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
        f"{key} is not a setting; {meant} is (docs/reference/settings.md lists them)"
        for key in unknown_settings(environ)
        if (meant := _meant(key, variables))
    ]
    # Check the rules between settings also after a bad value, which has its default here: all problems show at once.
    found = Environment(**values)
    problems += broken_rules(found, given=frozenset(values))
    if problems:
        raise BadConfiguration(problems)
    return found


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that begin with QUEUEOPS_ but are neither settings of this version nor the client's."""
    known = OF_THE_CLIENT | {declared.variable for declared, _ in declared_settings().values()}
    return [key for key in sorted(environ) if key.startswith("QUEUEOPS_") and key not in known]


def _meant(key: str, variables: Iterable[str]) -> str:
    """Return the setting whose name differs from this one by a letter or two; empty: there is no such setting."""
    return next(iter(get_close_matches(key, variables, n=1, cutoff=SAME_BUT_FOR_SLIPS)), "")


def _problem(declared: Setting, given: str) -> str:
    shown = "(not shown)" if declared.secret else repr(given)
    return f"{declared.variable} must be {declared.rule}; it is {shown}"
