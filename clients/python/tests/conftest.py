from collections.abc import Iterator

import pytest

from stand_in import StandIn, stand_in


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running
