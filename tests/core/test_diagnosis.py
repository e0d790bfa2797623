"""What `manage.py doctor` says of charts and metrics."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.test import override_settings

from jobs.models import FlowCursor
from queueops.diagnosis import Verdict, examine_metrics, examine_sums


@pytest.mark.django_db
def test_sums_that_stand_still_are_told_with_what_to_do():
    assert examine_sums().verdict is Verdict.OK
    FlowCursor.objects.create(log="events", counted=5, mark=9, marked_at=Now() - timedelta(minutes=10))
    found = examine_sums()
    assert (found.verdict, found.observation) == (Verdict.WARN, "charts and metrics are 600 s behind the job log")
    assert "pg_stat_activity" in found.advice
    FlowCursor.objects.update(counted=9)
    assert examine_sums().verdict is Verdict.OK


@pytest.mark.parametrize(
    ("debug", "token", "verdict"),
    [(True, "", Verdict.OK), (False, "", Verdict.WARN), (False, "a-token-for-scrapers", Verdict.OK)],
)
def test_production_without_a_token_for_metrics_is_told(debug, token, verdict):
    with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, debug=debug, metrics_token=token)):
        found = examine_metrics()
    assert found.verdict is verdict
    assert "a-token" not in found.observation + found.advice
