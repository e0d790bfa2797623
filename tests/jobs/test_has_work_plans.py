"""What a project has work of is told without reading its queue: 60,000 jobs in each state in which jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobs.models import PauseSwitch
from jobs.services.upkeep.has_work import calls_service, is_held_by
from jobs.states import JobState
from tests.factories import make_jobs, make_project
from tests.support.plans import assert_bounded, explain_reads

pytestmark = [pytest.mark.django_db, pytest.mark.matrix]  # tables are filled until plans matter

JOBS = 60_000
Scope = PauseSwitch.Scope

# Of p1, of one kind and service: ready, parked, due later, held and ended.
SEED = """
INSERT INTO tenancy_project (id, name) SELECT 'p' || i, 'p' || i FROM generate_series(1, 2) AS i;
ALTER TABLE jobs_job DISABLE TRIGGER USER;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since,
                      scheduled_at, finished_at, held)
SELECT gen_random_uuid(), 'p1', 'http.request', 'google-sheets', 'write', 'normal',
       (ARRAY['queued', 'rate_limited', 'retried', 'queued', 'completed'])[1 + i % 5], '{{}}', i, now(),
       CASE WHEN i % 5 = 2 THEN now() + interval '1 hour' END, CASE WHEN i % 5 = 4 THEN now() END, i % 5 = 3
  FROM generate_series(1, 5 * {jobs}) AS i;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
"""


@pytest.fixture(scope="module")
def queue(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(SEED.format(jobs=JOBS))
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job")
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job CASCADE")


@pytest.mark.parametrize(("project", "service"), [("p1", "openai"), ("p2", "google-sheets")])
def test_a_service_that_a_project_does_not_call_is_told_without_reading_its_queue(queue, project, service):
    assert calls_service("p1", "google-sheets")
    assert not calls_service(project, service)
    plans = explain_reads(lambda: calls_service(project, service))
    assert len(plans) == 3
    for plan in plans:
        assert_bounded(plan, rows=1_001, blocks=5_000)


@pytest.mark.parametrize(
    ("scope", "key", "holds"),
    [
        (Scope.SERVICE, "openai", False),
        (Scope.SERVICE, "google-sheets", True),
        (Scope.KIND, "llm.generate", False),
        (Scope.KIND, "http.request", True),
        (Scope.UNKNOWN, "llm.generate", False),
        (Scope.UNKNOWN, "http.request", True),
        (Scope.UNFIT, "http.request", False),
    ],
)
def test_a_pause_that_holds_nothing_of_a_project_is_told_without_reading_what_is_held(queue, scope, key, holds):
    switch = PauseSwitch(scope=scope, key=key)
    assert is_held_by(switch, "p1") is holds
    assert not is_held_by(switch, "p2")
    for project in ("p2",) if holds else ("p1", "p2"):
        for plan in explain_reads(lambda: is_held_by(switch, project)):  # noqa: B023 - called at once
            assert_bounded(plan, rows=1_001, blocks=5_000)


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        (JobState.QUEUED, True),
        (JobState.RATE_LIMITED, True),
        (JobState.RETRIED, True),
        (JobState.IN_PROGRESS, False),
        (JobState.COMPLETED, False),
    ],
)
def test_a_project_calls_the_services_of_its_waiting_jobs(state, calls):
    make_jobs(1, state=state, service="openai")
    assert calls_service("acme", "openai") is calls
    assert not calls_service("acme", "gemini")
    assert not calls_service(make_project("other").pk, "openai")
