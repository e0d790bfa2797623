"""Authenticating callers of the limiter while the database is out of reach."""

from __future__ import annotations

import threading
from collections import OrderedDict

from rest_framework.request import Request

from queueops.tenancy.callers.authentication import Caller, ProducerKeyAuthentication, presented_key
from queueops.tenancy.models import digest_of
from ratelimits.limiter.combine import UNREACHABLE
from ratelimits.limiter.outage import outage

MAX_REMEMBERED = 10_000


class RememberingKeyAuthentication(ProducerKeyAuthentication):
    """
    Authenticates as all addresses do. In an outage it also accepts keys, by digest, that this process has seen valid.

    Otherwise no limit could fail open. Such a key gives access to nothing else: its caller is answered without the
    database, so nothing is read or changed. A key revoked during an outage is accepted until the database is back.
    """

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        secret = presented_key(request)
        if secret is None:
            return None
        digest = digest_of(secret)
        if not outage.may_ask() and (known := _remembered(digest)):
            return known, known
        try:
            found = super().authenticate(request)
        except UNREACHABLE:
            outage.begin()
            known = _remembered(digest)
            if known is None:
                raise
            return known, known
        outage.end()
        if found is not None:
            _remember(digest, found[0])
        return found


_lock = threading.Lock()
_known: OrderedDict[str, Caller] = OrderedDict()


def _remember(digest: str, caller: Caller) -> None:
    with _lock:
        _known[digest] = caller
        _known.move_to_end(digest)
        if len(_known) > MAX_REMEMBERED:
            _known.popitem(last=False)


def _remembered(digest: str) -> Caller | None:
    with _lock:
        return _known.get(digest)
