"""A line is paid for once, whatever gets lost, comes late or twice, and wherever the process dies."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.handlers.errors import ProviderError
from jobs.models import Job, ProviderBatch
from queueops.core.outbound.client import OutboundResponse
from tests.support.batch_provider import Provider
from tests.support.examples import examples
from tests.support.provider_batches import make_round

pytestmark = pytest.mark.django_db(transaction=True)

FATES = ["well", "lost", "refused", "died before", "died after", "cut"]
MAX_STEPS = 200
_round = count()


class Died(BaseException):
    """The process was killed in the middle of a call."""


class Wire(CallLoop):
    """Calls that reach the provider above, each with the fate that is next."""

    def __init__(self, provider: Provider, fates: list[str]) -> None:
        super().__init__()
        self.provider, self.fates = provider, fates

    async def send(self, method, url, *, headers, body=None, on_line=None, on_piece=None):
        fate = self.fates.pop(0) if self.fates else "well"
        if fate == "died before":
            raise Died
        if fate == "refused":
            raise ProviderError(500, "out of order", code="http_500", outcome="answered")
        content = self.provider.answer(method, url.partition("/v1/")[2], body)
        if fate == "died after":
            raise Died
        if fate == "lost":
            raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")
        if on_line is not None:
            lines = content.splitlines()
            for line in lines[: len(lines) // 2] if fate == "cut" else lines:
                on_line(line)
            if fate == "cut":
                raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")
        return OutboundResponse(200, CIMultiDictProxy(CIMultiDict()), content, is_truncated=False, charset=None)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(fates=st.lists(st.sampled_from(FATES), max_size=14))
def test_whatever_becomes_of_the_calls_each_line_is_paid_for_once_and_each_job_is_completed(lane, fates):
    provider, given_fates = Provider(), list(fates)
    lane.credential_once()
    lane.submit(6, prompt=f"in round {next(_round)}")
    for _ in range(MAX_STEPS):
        ProviderBatch.objects.filter(closed_at=None).update(
            look_at=timezone.now(), create_before=timezone.now() - timedelta(hours=1)
        )
        wire = Wire(provider, given_fates)
        try:
            make_round(wire)
        except Died:
            pass  # the next round of this loop is another process
        finally:
            wire.close()
        if not Job.objects.filter(finished_at=None).exists() and not ProviderBatch.objects.filter(closed_at=None):
            break
    else:
        pytest.fail("the jobs did not end")
    assert set(provider.paid.values()) == {1}
    assert set(Job.objects.values_list("status", flat=True)) == {"completed"}
