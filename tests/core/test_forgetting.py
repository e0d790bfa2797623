"""What modules keep of a database does not outlive a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from cachetools import Cache

from dashboards.services.shared.cache import CachedRead
from queueops.access.services.trail import FailureBudget
from queueops.core.values.rate import Rate
from queueops.tenancy.secrets.encryption import is_encrypted, note_encrypted
from ratelimits.limiter.outage import Outage
from tests.support.forgetting import forget_all

PACKAGES = {"dashboards", "jobs", "queueops", "ratelimits"}


def kept(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Of all modules that are loaded."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES:
            for attribute, value in list(vars(module).items()):
                if isinstance(value, kind):
                    yield f"{name}.{attribute}", value
                elif isinstance(value, type) and value.__module__ == name:
                    yield from ((f"{name}.{attribute}", one) for one in vars(value).values() if isinstance(one, kind))


def test_every_module_forgets_what_it_keeps_of_a_database():
    caches, rates = dict(kept(Cache)), dict(kept(Rate))
    reads, outages, budgets = dict(kept(CachedRead)), dict(kept(Outage)), dict(kept(FailureBudget))
    assert len(caches) > 5
    assert all([rates, reads, outages, budgets])
    for cache in caches.values():
        cache["a test's"] = "own"
    for rate in rates.values():
        rate.take("a test's own")
    for read in reads.values():
        read._known = (float("inf"), "a test's own")
    for outage in outages.values():
        outage.begin()
    for budget in budgets.values():
        assert budget.take()
    forget_all()
    outlive = [name for name, cache in caches.items() if "a test's" in cache]
    outlive += [name for name, rate in rates.items() if "a test's own" in rate._full_at]
    outlive += [name for name, read in reads.items() if read._known]
    outlive += [name for name, outage in outages.items() if outage._lasts]
    outlive += [name for name, budget in budgets.items() if vars(budget)["_until"]]
    assert outlive == []


def test_a_project_is_not_taken_for_encrypted_because_the_test_before_had_it_so(db: None):
    note_encrypted("acme", is_on=True)
    forget_all()
    assert not is_encrypted("acme")
