"""The batch lane against the sandbox: each test takes the steps of the duty itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models import F
from django.utils import timezone

from jobs.executor.outcome_log import OutcomeLog
from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.steps.collect import room_was_made
from jobs.models import BatchSearch, Job, ProviderBatch
from jobs.services.submit.submit import BatchReceipt, submit_batch
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limits import catalogue
from tests.factories import make_project
from tests.support.processes import wait_for
from tests.support.provider_batches import make_round

DEADLINE = timedelta(hours=30)


@dataclass
class Lane:
    """What a test does with the lane of one provider."""

    url: str
    calls: CallLoop = field(default_factory=CallLoop)
    log: OutcomeLog | None = None

    def credential(self, service: str = "openai", **fields: Any) -> Credential:
        given = {"name": f"{service}-key", "base_url": self.url} | fields
        row = Credential.objects.create(service=service, secret=seal({"api_key": "project:acme/user:robot"}), **given)
        row.projects.add(make_project())
        return row

    def credential_once(self) -> None:
        if not Credential.objects.exists():
            self.credential()

    def submit(
        self,
        count: int,
        *,
        provider: str = "openai",
        key: str = "",
        prompt: str = "of a test",
        payload_fields: dict[str, Any] | None = None,
        **fields: Any,
    ) -> BatchReceipt:
        payloads = [
            {
                "provider": provider,
                "credential": key or f"{provider}-key",
                "model": "small-1",
                "prompt": f"Question {number} {prompt}",
                "max_output_tokens": 20,
                **(payload_fields or {}),
            }
            for number in range(count)
        ]
        return self.submit_payloads("llm.generate", payloads, **fields)

    def submit_payloads(self, kind: str, payloads: list[dict[str, Any]], **fields: Any) -> BatchReceipt:
        given = {"complete_by": (timezone.now() + DEADLINE).isoformat(), "via": "batch"} | fields
        jobs = [{"kind": kind, "payload": payload, **given} for payload in payloads]
        return submit_batch(jobs, project_id="acme", actor="key:test")

    def tend(self, *, now: bool = True) -> None:
        """Take one step of all batches; those that look later, and those that wait for the provider's list, too."""
        if now:
            moment = timezone.now()
            long_ago = moment - timedelta(hours=1)
            unfinished = ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED)
            unfinished.update(look_at=moment, create_before=long_ago)
            unfinished.filter(missing__gt=0).update(missing_since=long_ago)
            BatchSearch.objects.update(look_at=moment)
        make_round(self.calls, self.log)

    def tend_until_closed(self) -> ProviderBatch:
        """Take steps until the newest batch is closed."""

        def is_closed() -> bool:
            self.tend()
            return not ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED).exists()

        wait_for(is_closed, what="the end of the batch")
        return ProviderBatch.objects.latest("created_at")

    def let_wait_for_next(self) -> None:
        """Let what goes again wait for the next batch, and not for its backoff."""
        live_at = F("complete_by") - timedelta(seconds=settings.QUEUEOPS.batch_margin_seconds)
        Job.objects.filter(status="retried").update(scheduled_at=live_at)

    def restart(self) -> None:
        """Go on as another process would: nothing but the rows is known."""
        self.calls.close()
        self.calls = CallLoop()

    def states(self) -> list[str]:
        return sorted(Job.objects.values_list("status", flat=True))


@pytest.fixture
def lane(sandbox, db, settings) -> Iterator[Lane]:
    """A test that takes steps must commit (`transaction=True`): the steps' threads have connections of their own."""
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_collect_seconds=0.0, allow_loopback_targets=True)
    catalogue.forget()  # limits of the test before
    room_was_made()
    found = Lane(sandbox.url)
    yield found
    found.calls.close()
