"""What flowed, summed up from the log: complete, once, whoever counts and in whatever order transactions commit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs.services import flow
from jobs.states import JobState
from tests.factories import make_jobs
from tests.support.flow import count_all

pytestmark = pytest.mark.django_db(transaction=True)


def test_jobs_are_counted_by_what_became_of_them():
    count_all()
    make_jobs(3, state=JobState.COMPLETED)
    make_jobs(2, state=JobState.CANCELLED, service="other-api")
    count_all()
    totals = flow.totals().services
    assert totals["http"].submitted == totals["http"].completed == 3
    assert totals["other-api"].cancelled == 2
    assert sum(point.submitted for point in flow.series(timedelta(minutes=15))) == 5
