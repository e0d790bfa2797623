from collections.abc import Iterator

import hypothesis
import pytest

from stand_in import StandIn, stand_in
from usage_trackers import KINDS

# A run draws what the last one drew; draw anew with --hypothesis-profile=default. A busy machine draws slowly, too.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Of tracker."""
    return str(request.param)
