"""The batch lane at real executors: whoever has its duty is killed, and another goes on with what it was at."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.features.batch_lane.steps.rounds import duty_of
from jobs.models import DutyLease, Executor, Job, ProviderBatch
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.support.processes import wait_for

JOBS = 60
QUICK: dict[str, Any] = {
    "batch_collect_seconds": 0.5,
    "batch_poll_seconds": 1,
    "batch_call_seconds": 5,
    "allow_loopback_targets": "on",
}

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_a_killed_process_leaves_its_batches_to_another_and_nothing_is_paid_for_twice(sandbox, ledger, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, allow_loopback_targets=True)
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 1}, "results_cut_rate": 0.3})
    secret = seal({"api_key": "project:acme/user:robot"})
    row = Credential.objects.create(name="openai-key", service="openai", secret=secret, base_url=sandbox.url)
    row.projects.add(make_project())
    payload = {"provider": "openai", "credential": "openai-key", "model": "small-1", "max_output_tokens": 10}
    complete_by = (timezone.now() + timedelta(hours=30)).isoformat()
    submit_batch(
        [
            {
                "kind": "llm.generate",
                "payload": {**payload, "prompt": f"Question {number}"},
                "complete_by": complete_by,
                "via": "batch",
            }
            for number in range(JOBS)
        ],
        project_id="acme",
        actor="key:test",
    )
    with cluster(ledger, **QUICK):
        wait_for(lambda: ProviderBatch.objects.filter(state="open").exists(), what="a batch at the provider")
        holder = Executor.objects.get(pk=DutyLease.objects.get(duty=duty_of("llm.generate")).holder)
        os.kill(holder.pid, signal.SIGKILL)
        wait_for(
            lambda: Job.objects.filter(status=JobState.COMPLETED).count() == JOBS,
            seconds=120,
            what="the end of all jobs",
        )
    billing = sandbox.billing()
    assert (billing["prompts_paid"], billing["prompts_paid_again"]) == (JOBS, 0)
    assert billing["batches"]["never_fetched"] == 0
    assert not Job.objects.filter(crash_count__gt=0).exists(), "no job pays for the process that handed it over"
