"""What a provider keeps of a batch is deleted, wherever the process that made or read it died."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.utils import timezone

from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.handlers.errors import ProviderError
from jobs.models import ProviderBatch
from jobs.services.operate.job_actions import cancel_jobs
from tests.jobs.features.batch_lane.conftest import Lane
from tests.support.provider_batches import make_round, refuse_for_now, tend_interrupted
from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)

SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}
HEADERS = {"Authorization": "Bearer project:acme/user:robot"}


class Unanswered(CallLoop):
    """The first call of a name is carried out, and its answer is lost; or it never goes out."""

    def __init__(self, name: str, *, goes_out: bool) -> None:
        super().__init__()
        self._name, self._goes_out = name, goes_out

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if getattr(work, "__name__", "") != self._name:
            return super().run(work)
        self._name = ""
        if self._goes_out:
            super().run(work)
        else:
            work.close()
        raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")


def tend_unanswered(lane: Lane, name: str, *, goes_out: bool) -> None:
    calls = Unanswered(name, goes_out=goes_out)
    try:
        ProviderBatch.objects.update(look_at=timezone.now())
        make_round(calls)
    finally:
        calls.close()


def tend_until_only_closed(lane: Lane) -> None:
    """The process dies between closing a batch and deleting what its provider keeps of it."""
    while not ProviderBatch.objects.filter(closed_at__isnull=False).exists():
        tend_unanswered(lane, "forget", goes_out=False)


def files(sandbox: Sandbox) -> list[str]:
    page = httpx.get(f"{sandbox.url}/v1/files?limit=100", headers=HEADERS).json()
    return [one["filename"] for one in page["data"]]


def test_a_file_whose_upload_was_not_answered_is_found_by_its_name(lane, sandbox):
    sandbox.turn(batches=SOON)
    lane.credential()
    httpx.post(
        f"{sandbox.url}/v1/files",
        headers=HEADERS,
        data={"purpose": "batch"},
        files={"file": ("of another.jsonl", b"{}")},
    ).raise_for_status()
    lane.submit(2)
    tend_unanswered(lane, "prepare", goes_out=True)
    batch = ProviderBatch.objects.get()
    assert (batch.files, batch.uploads) == ({}, 1)
    assert len(files(sandbox)) == 2
    assert lane.tend_until_closed().succeeded == 2
    assert files(sandbox) == ["of another.jsonl"]


def test_files_of_a_batch_that_was_closed_and_not_forgotten_are_deleted_later(lane, sandbox):
    sandbox.turn(batches=SOON)
    lane.credential()
    lane.submit(2)
    lane.tend()
    tend_until_only_closed(lane)
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.is_kept) == ("completed", True)
    assert "its files were not deleted" in batch.error
    assert len(files(sandbox)) == 2
    ProviderBatch.objects.update(look_at=timezone.now())
    lane.tend()
    batch.refresh_from_db()
    assert (batch.files, batch.is_kept) == ({}, False)
    assert files(sandbox) == []


@pytest.mark.parametrize("provider", ["gemini", "anthropic"])
def test_a_batch_that_was_read_and_not_forgotten_is_deleted_later(lane, sandbox, provider):
    sandbox.turn(batches=SOON)
    lane.credential(provider)
    lane.submit(2, provider=provider)
    lane.tend()
    tend_until_only_closed(lane)
    assert not sandbox.calls(method="DELETE")
    ProviderBatch.objects.update(look_at=timezone.now())
    lane.tend()
    [call] = sandbox.calls(method="DELETE")
    assert call["status"] == 200
    assert not ProviderBatch.objects.get().is_kept


def test_the_file_of_a_batch_that_was_never_made_is_deleted(lane, sandbox):
    lane.credential()
    lane.submit(2)
    tend_interrupted(refuse_for_now)
    assert len(files(sandbox)) == 1
    cancel_jobs(
        list(ProviderBatch.objects.get().all_lines.values_list("job_id", flat=True)), actor="user:1", reason="-"
    )
    lane.tend_until_closed()
    ProviderBatch.objects.update(look_at=timezone.now())
    lane.tend()
    assert files(sandbox) == []


def test_it_is_tried_for_some_days_and_given_up(lane, sandbox):
    sandbox.turn(batches=SOON)
    lane.credential()
    lane.submit(2)
    lane.tend()
    tend_until_only_closed(lane)
    ProviderBatch.objects.update(look_at=timezone.now(), closed_at=timezone.now() - timedelta(days=4))
    lane.tend()
    assert not ProviderBatch.objects.get().is_kept
    assert not sandbox.calls(method="DELETE")


def test_why_a_batch_ended_stays_to_be_read_though_its_files_cannot_be_deleted(lane, sandbox):
    lane.credential()
    lane.submit(2)
    tend_until_only_closed(lane)
    ProviderBatch.objects.update(error="the key was revoked", is_kept=True)
    tend_unanswered(lane, "forget", goes_out=False)
    batch = ProviderBatch.objects.get()
    assert (batch.error, batch.is_kept) == ("the key was revoked", True)
    assert batch.faults > 0
    lane.tend()
