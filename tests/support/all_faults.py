"""One test of many things that need no set-up of their own: every one that is wrong is named, not the first alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@contextmanager
def all_faults() -> Iterator[Callable[[object], AbstractContextManager[None]]]:
    """
    Give what each one is checked in: `with all_faults() as of: for one in many: with of(one): assert ...`.

    Raises:
        AssertionError: At the end, with the name of each that failed and what it failed of.
    """
    faults: list[str] = []
    checked = 0

    @contextmanager
    def of(one: object) -> Iterator[None]:
        nonlocal checked
        checked += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told at the end
            said = str(error) or "an assertion that says nothing"
            faults.append(f"{one}: {said if isinstance(error, AssertionError) else f'{type(error).__name__}: {said}'}")

    yield of
    assert checked, "there is nothing to check"
    assert not faults, f"{len(faults)} of {checked}\n" + "\n".join(faults)
