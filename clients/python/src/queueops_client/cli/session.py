"""The part that every command shares: the installation, the key, and the form of the output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource
from rich.console import Console

from queueops_client.cli.words import clean
from queueops_client.errors import ApiError, BadConfiguration, Unreachable
from queueops_client.producer import QueueOps
from queueops_client.retry import Retry

ENDED_WITH_FAILURES = 3
TOLD_OF = 3  # the third repeat of a request is reported: the first two come within a second

Command = TypeVar("Command", bound=Callable[..., Any])

MAX_LISTED = 10**9


class Seconds(click.FloatRange):
    """A number of seconds; `nan` and `inf` are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        return seconds if isfinite(seconds) else self.fail(f"{value!r} is no number of seconds.", param, ctx)


@dataclass
class Session:
    """
    Attributes:
        as_json: Whether standard output gets nothing but one JSON document, or one a line.
    """

    url: str
    key_file: Path | None
    as_json: bool

    def __post_init__(self) -> None:
        self.out = Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())
        self.err = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def queue(self) -> QueueOps:
        """
        Raises:
            BadConfiguration: There is no address or no key.
        """
        return QueueOps(self.address(), self.key(), retry=self.retry())

    def retry(self) -> Retry:
        """Return the client's usual Retry, which also tells the person at the terminal that it waits."""
        usual = Retry()

        def tell(error: ApiError | Unreachable, repeat: int) -> None:
            if repeat == TOLD_OF and not self.as_json:  # with --json, standard error has JSON alone
                self.note(f"{str(error).rstrip('.')}. Trying again, for up to {usual.budget_seconds:.0f} s ...")

        return replace(usual, told=tell)

    def address(self) -> str:
        if not self.url:
            raise BadConfiguration("Name the installation: --url https://queue.example.org, or QUEUEOPS_URL.")
        return self.url

    def key(self) -> str:
        """Read the key from the file, the environment or the terminal; never from an argument, which all users see."""
        if self.key_file is not None:
            try:
                return self.key_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise BadConfiguration(f"The key file cannot be read: {error}") from error
        if found := os.environ.get("QUEUEOPS_KEY", "").strip():
            return found
        if sys.stdin.isatty() and sys.stderr.isatty():
            return str(click.prompt("Key", hide_input=True, err=True)).strip()
        raise BadConfiguration("There is no key: set QUEUEOPS_KEY, or name a file with --key-file.")

    def say(self, text: str) -> None:
        """Print a line for people on standard output; nothing with --json."""
        if not self.as_json:
            self.out.print(clean(text))

    def note(self, text: str) -> None:
        """Print a text for people on standard error, beside the output."""
        self.err.print(clean(text))

    def give(self, data: Any) -> None:
        """Print one line of JSON on standard output, in any mode."""
        sys.stdout.write(json.dumps(data, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()

    def show(self, data: Mapping[str, Any], text: str) -> None:
        """Print JSON with --json, and text for people otherwise."""
        if self.as_json:
            self.give(data)
        else:
            self.say(text)

    def confirm(self, question: str, *, yes: bool) -> None:
        """
        Raises:
            UsageError: There is no terminal to ask at.
            Abort: The answer was no.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(f"{clean(question)} Nobody is there to be asked; say --yes.")
        click.confirm(clean(question), abort=True, err=True)


def shared(*, environment: bool) -> Callable[[Command], Command]:
    """
    Return a decorator that adds the options that all commands have.

    Args:
        environment: Whether environment variables replace options that are not given.
    """

    def add(function: Command) -> Command:
        for option in (
            click.option("--json", "as_json", is_flag=True, help="JSON on standard output, for programs."),
            click.option(
                "--key-file",
                envvar="QUEUEOPS_KEY_FILE" if environment else None,
                type=click.Path(dir_okay=False, path_type=Path),
                help="A file that holds the key; otherwise QUEUEOPS_KEY, or it is asked for.",
            ),
            click.option(
                "--url",
                envvar="QUEUEOPS_URL" if environment else None,
                default="",
                help="The installation's address (QUEUEOPS_URL).",
            ),
        ):
            function = option(function)
        return function

    return add


def command(function: Command) -> Command:
    """Add the common options to a command, and pass it a Session. The options may also be before the command's name."""

    @shared(environment=True)
    @wraps(function)
    def wrapped(**given: Any) -> Any:
        context = click.get_current_context()
        of_session = {}
        for name in ("url", "key_file", "as_json"):
            here, before = given.pop(name), (context.obj or {}).get(name)
            is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            of_session[name] = here if is_given or not before else before
        return function(Session(**of_session), **given)

    return cast("Command", wrapped)
