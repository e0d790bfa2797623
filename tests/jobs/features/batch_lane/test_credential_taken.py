"""A credential that goes between submission and collection: jobs of the lane fare as live ones do."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.models import DeadLetter, Job, ProviderBatch
from jobs.testing import drain
from queueops.tenancy.models import Credential
from tests.jobs.features.batch_lane.conftest import Lane

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_was_submitted_still_goes_by_batch_once_its_project_is_taken_off_the_credential(lane: Lane) -> None:
    credential = lane.credential()
    lane.submit(2)
    credential.projects.clear()
    assert lane.tend_until_closed().succeeded == 2


def test_jobs_of_a_deleted_credential_fail_at_once_as_live_ones_do(lane: Lane) -> None:
    lane.credential()
    lane.submit(2)
    Credential.objects.all().delete()
    assert lane.tend_until_closed().state == "failed"
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists(), "they go live"
    drain()
    assert list(DeadLetter.objects.values_list("error_code", flat=True)) == ["unknown_credential"] * 2
    assert lane.states() == ["failed"] * 2
    assert not ProviderBatch.objects.exclude(closed_at__isnull=False).exists()
