"""
The top users of each limit in the last hour. Pages ask for them separately, about twice a minute, because reading them
is too slow for every second.
"""

from __future__ import annotations

from typing import Any

from dashboards.services.shared.cache import CachedRead
from queueops.tenancy.user_labels import in_words
from ratelimits.limiter.view.gauges import top_users
from ratelimits.models import CallTally, Limit

MAX_LIMITS_OF_USERS = 12  # limits that are read; each reads up to 100,000 tallies
MAX_USERS_OF_A_LIMIT = 3
USERS_KEPT_SECONDS = 30.0


def users_of_limits() -> dict[str, dict[str, Any]]:
    """Return the top users of the limits whose services were called lately, by the limit's id as text."""
    return _users.get()


def _read() -> dict[str, dict[str, Any]]:
    newest = CallTally.objects.order_by("-pk").values_list("service", flat=True)[:1000]
    limits = Limit.objects.filter(enabled=True, service__in=set(newest)).order_by("pk")[:MAX_LIMITS_OF_USERS]
    return {str(limit.pk): _users_of(limit) for limit in limits}


def _users_of(limit: Limit) -> dict[str, Any]:
    found = top_users(limit, most=MAX_USERS_OF_A_LIMIT)
    called = in_words(one.name for one in found.users)
    return {
        "users": [{"name": called[one.name], "calls": one.calls, "amount": round(one.amount)} for one in found.users],
        "partial": found.partial,
    }


_users = CachedRead(_read, seconds=USERS_KEPT_SECONDS)
