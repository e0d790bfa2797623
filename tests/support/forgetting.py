"""
What a process keeps of its database is forgotten before each test, which has another one.

Or a test would see the limits, prices, people and refusals of whichever test its worker ran before, for as long as the
program keeps them: from half a second to an hour.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dashboards.services.shared import cache
from jobs.features.batch_lane.steps import collect
from jobs.features.refused_calls import stops
from jobs.handlers.google import grids
from jobs.services.claim import provider_quotas
from queueops.access.services import trail
from queueops.core.postgres import conditions, replica
from queueops.tenancy import accounts
from queueops.tenancy.callers import throttles
from queueops.tenancy.credential_pools import pools, server_settings
from queueops.tenancy.secrets import encryption
from ratelimits.limiter import counters, estimates, outage
from ratelimits.limiter.api import authentication
from ratelimits.limits import catalogue
from ratelimits.money import budgets, prices

FORGET: tuple[Callable[[], object], ...] = (
    accounts.forget,
    authentication._known.clear,
    budgets.forget,
    cache.forget_all,
    catalogue.forget,
    collect.room_was_made,
    conditions._full_since.clear,
    counters._known.clear,
    encryption.forget_encrypted,
    estimates.forget,
    grids._kept.clear,
    outage.outage.end,
    pools.forget,
    prices.forget,
    replica.forget_trouble,
    server_settings.forget,
    provider_quotas.forget,
    stops.forget,
    throttles.CallerThrottle.rate._full_at.clear,
    throttles.bad_keys._full_at.clear,
    lambda: vars(trail._failures).update(vars(trail.FailureBudget())),
)


def forget_all() -> None:
    for forget in FORGET:
        forget()


@pytest.fixture(autouse=True)
def nothing_is_kept() -> None:
    """Nothing of the test before."""
    forget_all()
