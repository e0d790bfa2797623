"""Executors that die around the moment at which a large result is stored: none is lost, and rests are swept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings as django_settings

from jobs.features.results.garbage_collect import sweep_results
from jobs.features.results.read import whole_result
from jobs.features.results.reference import read_name, stored_in
from jobs.features.results.store import result_store
from jobs.models import Job
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, submit_work, wait_until_drained


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("times", [pytest.param(1, id="short"), pytest.param(30, id="long", marks=pytest.mark.soak)])
def test_an_executor_killed_between_object_and_commit_loses_nothing_and_leaves_what_the_sweep_removes(
    times: int, ledger: Ledger, settings, figures
):
    place = ledger.directory / "results"
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, result_store=str(place), result_store_over=1000)
    options = {"result_store": place, "result_store_over": 1000, "executor_slots": 1}
    with cluster(ledger, executors=2, lease_seconds=2, renew_seconds=0.5, **options) as running:
        for point in ("before_ack", "before_effect"):
            submit_work(times, "write_much", point=point)
        wait_until_drained(seconds=60 + 10 * times)
        for _ in range(times):
            # One at a time: the commit that ends a job may claim the next, and the third such crash would bury it.
            running.wait_until_ready()
            submit_work(1, "write_much", point="after_ack")
            wait_until_drained()
    store = result_store()
    assert store
    jobs = list(Job.objects.all())
    assert {job.status for job in jobs} == {JobState.COMPLETED}
    named = {job.pk: stored_in(job.result) for job in jobs}
    assert None not in named.values()
    for job in jobs:
        assert whole_result(job)["text"] == "x" * 5000
        assert ledger.was_asked(f"{_point(job)}-{job.pk}"), "nobody was killed"
    there = {file.name for file in store.files(PROJECT)}
    orphans = there - {stored.name for stored in named.values() if stored}
    assert {read_name(name) is not None for name in orphans} == {True}
    assert len(orphans) >= times, "each that died before its commit had written its object"
    assert sweep_results(store, grace=timedelta()).removed == len(orphans)
    for job in jobs:
        assert whole_result(job)["text"] == "x" * 5000
    figures(f"{3 * times} kills around the commit: 0 results lost, {len(orphans)} objects without a row, all swept")


def _point(job: Job) -> str:
    return str(job.payload["point"])
