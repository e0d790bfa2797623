"""With 100,000 jobs in 2,000 lanes: what claims and explanations read stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from jobs.features.forecast.forecast import MAX_OF_A_BATCH_SAMPLED, MAX_SHARERS_READ, limits_of_batch
from jobs.models import Job
from jobs.services.explain.position import MAX_AHEAD_COUNTED
from jobs.services.explain.waiting import explain_waiting
from queueops.core.sql import load_sql
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.support.plans import BATCH, assert_bounded, explain_file, explain_reads

pytestmark = [pytest.mark.django_db, pytest.mark.matrix]  # tables are filled until plans matter

JOBS, LANES = 100_000, 2_000
DEEP_LANE = "google-sheets/write//deep//deep/"
BLOCKS_A_ROW = 4  # of an index: its pages, and the row's

# Half of the jobs stand in one lane and the others in 2,000; three in four are parked.
SEED = """
INSERT INTO tenancy_project (id, name) SELECT id, id FROM unnest(ARRAY['deep', 'wide']) AS id;
INSERT INTO jobs_batch (id, project_id, name, total, submitted_by) VALUES ('{batch}', 'deep', '', 1, 'key:test');
ALTER TABLE jobs_job DISABLE TRIGGER USER;
INSERT INTO jobs_job (id, project_id, batch_id, kind, service, call_type, priority, status, payload, effect_key, lane,
                      eligible_since, scheduled_at)
SELECT gen_random_uuid(), CASE WHEN i % 2 = 0 THEN 'deep' ELSE 'wide' END, CASE WHEN i % 2 = 0 THEN uuid '{batch}' END,
       'http.request', 'google-sheets', 'write', (ARRAY['urgent', 'normal', 'low'])[1 + i % 3], state, '{{}}', i,
       CASE WHEN i % 2 = 0 THEN '{deep}' ELSE format('google-sheets/write//wide/u%s/wide/u%s', i % {lanes}, i % {lanes})
       END,
       now() - i * interval '1 second',
       CASE WHEN state = 'rate_limited' THEN now() + i * interval '1 second' END
  FROM generate_series(1, {jobs}) AS i,
       LATERAL (SELECT CASE WHEN i % 4 = 0 THEN 'queued' ELSE 'rate_limited' END AS state) AS chosen;
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE jobs_job ENABLE TRIGGER USER;
"""


@pytest.fixture(scope="module")
def lanes(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The table at depth and a limit that divides both projects, for this module."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        with transaction.atomic():
            cursor.execute(SEED.format(jobs=JOBS, lanes=LANES * 2, deep=DEEP_LANE, batch=BATCH))
            Limit.objects.all().delete()
            for name, scope in (("a", "project"), ("b", "global")):
                Limit.objects.create(name=name, service="google-sheets", call_type="write", scope=scope, capacity=300)
        cursor.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs_job")
        catalogue.forget()
    try:
        yield
    finally:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("TRUNCATE tenancy_project, jobs_job, jobs_batch, jobs_jobcount, jobs_jobevent CASCADE")
            Limit.objects.all().delete()
            catalogue.forget()


def names(count: int) -> list[str]:
    found = Job.objects.filter(project_id="wide").values_list("lane", flat=True).distinct()
    return [str(lane) for lane in found[:count]]


def last_of(lane: str, **conditions: Any) -> Job:
    job = Job.objects.filter(lane=lane, status="rate_limited", **conditions).order_by("-eligible_since").first()
    assert job is not None
    return job


@pytest.mark.parametrize(("wanted", "opened"), [(1, 1), (50, 500), (200, 500)])
def test_a_claim_reads_heads_of_the_open_lanes_and_nothing_behind_them(lanes, wanted, opened):
    heads = 2 * wanted // opened + 2
    plan = explain_file(
        "jobs", "choose_jobs", wanted=wanted, starved_after=9.0, starved_every=9.0, turn_classes=[2],
        turn_projects=["wide"], turn_passes=[3.0], turn_nows=[0.0, 2.0],
        lanes=names(opened), rooms=[heads] * opened, passes=[0.0] * opened,
        resting=[], flow_projects=["wide"], flow_passes=[0.0], strange=[],
        known_projects=None, known_priorities=None, known_since=None, everywhere=True, most_bytes=16_000_000,
    )  # fmt: skip
    tiers = 3  # each head is held against the rule of each tier
    assert_bounded(plan, rows=tiers * 3 * heads * opened + 200, blocks=3 * heads * opened * 2 * BLOCKS_A_ROW + 2_000)


def test_a_list_of_lanes_reads_two_rows_a_lane(lanes):
    assert Job.objects.values("lane").distinct().count() == LANES + 1
    plan = explain_file("jobs", "list_lanes", after="", most=LANES * 2)
    assert_bounded(plan, rows=2 * LANES + 10, blocks=2 * LANES * BLOCKS_A_ROW * 2)


def test_lanes_that_share_a_limit_are_found_by_four_probes_a_lane(lanes):
    assert "ORDER BY lane LIMIT 1" in load_sql("jobs", "find_waiting_lanes")
    plan = explain_file("jobs", "find_waiting_lanes", from_lane="google-sheets/", most=MAX_SHARERS_READ)
    assert_bounded(plan, rows=MAX_SHARERS_READ + 10, blocks=4 * MAX_SHARERS_READ * BLOCKS_A_ROW * 2)


@pytest.mark.parametrize("page_cost", [1.1, 4, 100])  # from where an index is cheap to where sorting is
@pytest.mark.parametrize("tier", ["urgent", "normal", "low"])
def test_a_position_at_the_end_of_a_deep_lane_reads_no_more_than_it_counts(lanes, tier, page_cost):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL random_page_cost = %s", [page_cost])
    job = last_of(DEEP_LANE, priority=tier)
    for plan in explain_reads(lambda: explain_waiting(job)):
        assert_bounded(plan, rows=MAX_AHEAD_COUNTED + 10, blocks=MAX_AHEAD_COUNTED * BLOCKS_A_ROW)
    waiting = explain_waiting(job)
    assert waiting is not None
    assert waiting.position is not None
    assert waiting.place is not None


def test_the_last_of_a_deep_lane_stands_behind_more_than_are_counted(lanes):
    waiting = explain_waiting(last_of(DEEP_LANE, priority="low"))
    assert waiting is not None
    assert waiting.place == "more than 10,000"
    assert waiting.forecast is not None
    assert "lanes share" in waiting.forecast.basis


def test_a_position_in_a_short_lane_reads_that_lane(lanes):
    job = last_of(names(1)[0])
    for plan in explain_reads(lambda: explain_waiting(job)):
        assert_bounded(plan, rows=100, blocks=500)


def test_a_batchs_end_is_foreseen_from_a_sample_of_its_rows(lanes):
    counts = {"queued": JOBS // 4, "rate_limited": JOBS // 4}
    now = last_of(DEEP_LANE).eligible_since
    for plan in explain_reads(lambda: limits_of_batch(BATCH, counts, now=now)):
        assert_bounded(plan, rows=MAX_OF_A_BATCH_SAMPLED, blocks=MAX_OF_A_BATCH_SAMPLED * BLOCKS_A_ROW)
