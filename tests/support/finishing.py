"""Jobs that were claimed, and how their attempts end."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from jobs.backoff import Policy
from jobs.classify import Failure
from jobs.services.claim.claim import claim_jobs
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.finish.claimed import ClaimedJob
from tests.factories import make_job

STEADY = {"moderate": Policy(initial=4, multiplier=2, max_delay=60, max_retries=3, jitter="none", window=500)}
BROKEN = Failure("broken", "ConnectionError", "the connection broke", outcome="unknown")
NOT_FOUND = Failure("http_404", "ProviderError", "HTTP 404", outcome="answered", status=404)


def started(**fields: Any) -> ClaimedJob:
    make_job(**fields)
    return claim()


def claim() -> ClaimedJob:
    [job] = claim_jobs(uuid4(), wanted=1, lease_seconds=30, turns=ClassTurns())
    return job
