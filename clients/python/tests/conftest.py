from collections.abc import Iterator

import hypothesis
import pytest

from stand_in import StandIn, stand_in
from usage_trackers import KINDS

# A busy machine draws slowly.
_slow = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# As in the server's tests, with which these run in one process: either way the profiles are the same.
hypothesis.settings.register_profile("repeatable", _slow, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", _slow, max_examples=1000, print_blob=True)
if hypothesis.settings.get_current_profile_name() != "nightly":
    hypothesis.settings.load_profile("repeatable")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Of tracker."""
    return str(request.param)
