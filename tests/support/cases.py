"""One test of many cases, for cases that need no set-up of their own: written as `parametrize` is, but one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

from tests.support.all_faults import all_faults
from tests.support.undone import undone as taken_back


def every_case(
    names: str | tuple[str, ...], cases: Iterable[Any], *, undone: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """
    Run the test for each case, in one test that tells of all that fail; fixtures are made once.

    Args:
        names: Of the test's parameters, as `parametrize` takes them.
        undone: What a case writes into the database is taken back before the next.
    """
    kept = list(cases)

    def made(test: Callable[..., Any]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            with all_faults() as of:
                for case in kept:
                    given = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
                    with of(f"{given!r:.300}"), taken_back() if undone else nullcontext():
                        test(**fixtures, **given)

        functools.update_wrapper(run, test)
        vars(run).pop("__wrapped__")  # pytest would ask for the cases' parameters as fixtures
        taken = {names} if isinstance(names, str) else set(names)
        signature = inspect.signature(test)
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name not in taken
        ]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return made
