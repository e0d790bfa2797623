"""What tests of the limiter's services share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.ratelimits.counting import Clock
from tests.support.plans import planned  # noqa: F401


@pytest.fixture
def no_limits(db: None) -> Iterator[None]:
    """Begin without the limits that come with the program."""
    Limit.objects.all().delete()
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the limiter reads."""
    return Clock(monkeypatch)
