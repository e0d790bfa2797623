"""What the admin's pages call the rows and the people that a page is about."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from jobs.models import ServiceBreaker
from jobs.states import JobState
from tests.factories import make_jobs
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


def text_of(answer):
    """What a page says, without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def test_the_overview_counts_what_an_outage_holds_apart_for_each_project():
    make_jobs(3, state=JobState.RATE_LIMITED, service="http:down.example")
    make_jobs(2, state=JobState.RATE_LIMITED, project="globex")
    out = {"service": "http:down.example", "opened_at": timezone.now()}
    ServiceBreaker.objects.create(project_id="acme", holds=3, **out)
    client = signed_in("operator")
    rows = {row["id"]: row["counts"] for row in client.get("/admin/").context["projects"]}
    shown = {project: {one["name"]: one["count"] for one in counts if one["count"]} for project, counts in rows.items()}
    assert shown == {"acme": {"outage": 3}, "globex": {"rate_limited": 2}}
    for counts in rows.values():
        for one in counts:
            assert len(client.get(one["href"]).context["cl"].result_list) == one["count"], one["href"]
