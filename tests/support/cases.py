"""One test of many cases, which tells all that fail at once: for cases that need no set-up of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.support.undone import undone as taken_back


def every_case(
    names: str | tuple[str, ...], cases: Iterable[Any], *, undone: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """
    Run the test for each case, in one test; fixtures are made once.

    Args:
        names: Of the test's parameters, as `parametrize` takes them.
        undone: What a case writes into the database is undone before the next.
    """
    kept = list(cases)
    assert kept, "no case proves nothing"

    def made(test: Callable[..., Any]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            faults = []
            for case in kept:
                given = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
                try:
                    with taken_back() if undone else nullcontext():
                        test(**fixtures, **given)
                except (Exception, pytest.fail.Exception) as fault:  # noqa: BLE001 - the other cases are told, too
                    faults.append(f"{given!r:.300}\n  {type(fault).__name__}: {fault}")
            assert not faults, f"{len(faults)} of {len(kept)} cases:\n" + "\n".join(faults)

        functools.update_wrapper(run, test)
        del run.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for the cases' parameters as fixtures
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
