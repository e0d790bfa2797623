"""The oldest ready job of all: projects whose jobs cannot go take the place of no other."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from jobs.features.watches import watch
from jobs.models import Job
from jobs.services.claim import ready
from jobs.services.operate.pauses import pause_scope
from ratelimits.models import QuotaAlert
from tests.factories import make_jobs

pytestmark = pytest.mark.django_db


@pytest.fixture
def paused_and_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "MAX_PROJECTS", 1)
    monkeypatch.setattr(watch, "MAX_PROJECTS_WATCHED", 1)
    make_jobs(3, project="still")
    make_jobs(1, project="acme")
    Job.objects.update(eligible_since=timezone.now() - timedelta(days=1))
    pause_scope("project", "still", actor="user:1")


def test_a_paused_project_hides_no_other_from_the_gauge(paused_and_busy):
    assert (
        ready.oldest_of_busiest({"still": 3, "acme": 1}) == Job.objects.filter(project_id="acme").get().eligible_since
    )
    assert ready.oldest_of_busiest({"still": 3, "acme": 0}) is None


def test_a_paused_project_hides_no_other_from_the_alert(paused_and_busy):
    assert timedelta(minutes=django_settings.QUEUEOPS.alert_oldest_ready_minutes) < timedelta(days=1)
    watch.watch_ready([])
    assert [alert.subject for alert in QuotaAlert.objects.filter(kind="oldest_ready")] == ["acme"]
