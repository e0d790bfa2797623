"""A login role that row security confines moves a project, too: it sees and writes all that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import Job, JobEvent
from jobs.states import JobState
from queueops.tenancy.models import ProducerKey, Project
from ratelimits.models import Limit
from tests.factories import make_batch, make_dead_letter, make_jobs, make_project
from tests.support.ordinary_login import LOGIN, Administrator
from tests.support.processes import database_url

OTHER = "other_cell"


@pytest.fixture
def other(migrated: None, fresh_server: Any, administrator: Administrator) -> Iterator[str]:
    """Another installation's database of the same login role, migrated; its name."""
    administrator(f'CREATE DATABASE {OTHER} OWNER "{LOGIN}"')
    here = connection.settings_dict["NAME"]
    go_to(OTHER)
    call_command("migrate", verbosity=0)  # a copy would be taken for this installation
    go_to(here)
    yield OTHER
    connection.close()
    administrator(f"DROP DATABASE {OTHER} WITH (FORCE)")


def go_to(name: str) -> None:
    connection.close()
    connection.settings_dict["NAME"] = name


def rows() -> list[Any]:
    return [
        list(Job.objects.order_by("pk").values_list("pk", "status", "batch_id", "payload")),
        list(JobEvent.objects.order_by("id").values_list("job_id", "to_status", "created_at")),
        list(ProducerKey.objects.values_list("digest", "scopes")),
    ]


def test_a_login_that_policies_confine_moves_all_of_a_project(other):
    project = make_project("acme")
    ProducerKey.issue(project, name="nightly")
    batch = make_batch()
    for state in (JobState.QUEUED, JobState.RATE_LIMITED, JobState.RETRIED, JobState.COMPLETED):
        make_jobs(3, state=state, batch=batch)
    make_dead_letter()
    Limit.objects.update(enabled=False)
    before, here = rows(), connection.settings_dict["NAME"]
    go_to(other)
    url = database_url()
    go_to(here)
    call_command("move_project", "acme", "--to", url, "--yes", stdout=StringIO())
    assert Project.objects.get().move == "moved"
    go_to(other)
    assert rows() == before
    assert Project.objects.get().move == ""
    go_to(here)
