"""A `complete_by` that cannot be one: refused wherever jobs are submitted or asked about, and nothing is stored."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from jobs.models import Batch, Job
from queueops.core.values.moments import RULE
from tests.api.conftest import SPEC, Api, error_of

OVER = timezone.now() - timedelta(hours=1)
TOO_FAR = timezone.now() + timedelta(days=400)

CASES: dict[str, tuple[Any, str, str]] = {
    "past": (OVER, "bad_deadline", "must be in the future"),
    "too far": (TOO_FAR, "bad_deadline", "must be at most 366 days away"),
    "words": ("tomorrow", "invalid_job", RULE),
    "a number": (1_790_000_000, "invalid_job", RULE),
    "without a zone": ("2027-03-02T09:00:00", "invalid_job", RULE),
    "a day": ("2027-03-02", "invalid_job", RULE),
    "no such day": ("2027-02-30T09:00:00Z", "invalid_job", "Input should be a valid datetime"),
    "an offset that nobody has": ("2027-03-02T09:00:00+16:00", "invalid_job", RULE),
    "beyond the calendar": ("9999-12-31T23:59:59-10:00", "invalid_job", "Write a time of the years 1970 to 9998"),
}


def job_of(case: str) -> tuple[dict[str, Any], str, str]:
    given, code, told = CASES[case]
    when = given.isoformat() if isinstance(given, datetime) else given
    return {**SPEC, "complete_by": when}, code, told


def is_told(error: dict[str, Any], code: str, told: str) -> None:
    [said] = error["fields"]["complete_by"]
    assert error["code"] == code
    assert said.startswith(told)


def test_a_job_a_line_of_a_batch_and_a_forecast_are_refused_by_the_field(api: Api):
    for case in CASES:
        job, code, told = job_of(case)
        is_told(error_of(api.post("/jobs/", job), 422), code, told)
        lines = f"{json.dumps(SPEC)}\n{json.dumps(job)}"
        for answer in (api.post("/batches/", {"jobs": [SPEC, job]}), api.lines(lines)):
            error = error_of(answer, 422)
            [line] = error["details"]["errors"]
            assert (error["code"], line["line"]) == ("batch_rejected", 2)
            is_told(line, code, told)
        forecast = api.post("/forecast/", {"jobs": [SPEC, job]}).json()
        assert (forecast["accepted"], forecast["rejected"]["count"]) == (False, 1)
        [line] = forecast["rejected"]["jobs"]
        assert line["line"] == 2
        is_told(line, code, told)
    assert not Job.objects.exists()
    assert not Batch.objects.exists()
