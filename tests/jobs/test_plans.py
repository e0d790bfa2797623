"""The plans of the hot statements with 100,000 jobs: what they read stays bounded, whatever waits behind it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone
from psycopg.types.json import Json

from jobs.executor import pump
from jobs.features.batch_guards import guards
from jobs.models import DeadLetter, Dependency, Job, JobEvent, Objective, PauseSwitch, RefusedCalls, Tag, new_id
from jobs.services.claim import claim
from jobs.services.explain.snapshots import batch_counts, project_counts
from jobs.services.upkeep import retention, upkeep
from jobs.states import TRANSITIONS
from queueops.core.clock import Now
from queueops.core.sql import load_sql
from queueops.rest import pagination
from queueops.tenancy.models import Project
from tests.api.conftest import Api, key_for
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_webhook
from tests.support.plans import (
    BATCH,
    BIG_TABLES,
    JOBS,
    PROJECTS,
    assert_bounded,
    blocks_touched,
    explain_file,
    explain_reads,
    nodes,
    rows_read,
)

pytestmark = pytest.mark.django_db

# Stored in the order of their ids, as jobs come, which makes the index of a project's jobs look cheap.
ONE_PROJECT = """
TRUNCATE jobs_job CASCADE;
INSERT INTO jobs_job (id, project_id, kind, service, call_type, priority, status, payload, effect_key, eligible_since)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'p1', 'http.request', 'http', 'write', 'normal', 'queued', '{}', i, now()
  FROM generate_series(1, 20000) AS i;
ANALYZE jobs_job;
UPDATE jobs_job SET status = 'cancelled', finished_at = now() WHERE id < '00000000-0000-0000-0000-000000001000';
"""


# A batch of which the first hundred are tried, the first sixty have ended, and the others are held.
ON_TRIAL = """
TRUNCATE jobs_job CASCADE;
UPDATE jobs_batch SET guard_state = 'trial', guard = '{"first": 50, "percent": 20}', total = 20000,
                      trial_until = lpad(to_hex(100), 32, '0')::uuid;
INSERT INTO jobs_job (id, project_id, batch_id, kind, service, call_type, priority, status, held, payload, effect_key,
                      eligible_since)
SELECT lpad(to_hex(i), 32, '0')::uuid, 'p1', '00000000-0000-0000-0000-000000000007', 'http.request', 'http', 'write',
       'normal', 'queued', i > 100, '{}', i, now()
  FROM generate_series(1, 20000) AS i;
UPDATE jobs_job SET status = 'cancelled', finished_at = now() WHERE id <= lpad(to_hex(60), 32, '0')::uuid;
ANALYZE jobs_job;
"""


@pytest.fixture
def as_executor(backlog: None) -> Iterator[None]:
    """The session settings that the executor's pump makes."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name, value in pump.PLANNING:
            cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        yield
        transaction.set_rollback(True)


def some(state: str, number: int = 50, **conditions: Any) -> list[tuple[UUID, int]]:
    return list(Job.objects.filter(status=state, **conditions).values_list("pk", "fencing_token")[:number])


@pytest.mark.parametrize("wanted", [1, 50, 200])
def test_a_claim_reads_heads_and_not_the_backlog(as_executor, wanted):
    tiers = 3  # each head is held against the rule of each tier, where the planner joins them so
    heads = tiers * (2 * wanted + 16)
    plan = explain_file(
        "jobs", "choose_jobs", wanted=wanted, starved_after=9.0, starved_every=9.0,
        turn_classes=[2, 2], turn_projects=["p1", "p2"], turn_passes=[3.0, 4.0], turn_nows=[0.0, 2.0],
        lanes=[], rooms=[], passes=[], resting=[], flow_projects=["p3"], flow_passes=[2.0], strange=[],
        known_projects=None, known_priorities=None, known_since=None, everywhere=True, most_bytes=16_000_000,
    )  # fmt: skip
    assert_bounded(plan, rows=tiers * heads + 500, blocks=6_000 + 60 * wanted)


def test_a_claim_reads_none_of_an_active_projects_finished_jobs(as_executor):
    # All columns of the ready index: by the project alone, the index of a project's jobs may look as good.
    assert load_sql("jobs", "choose_jobs").count("ORDER BY project_id, priority, eligible_since, id LIMIT 1") == 2
    with connection.cursor() as cursor:
        cursor.execute(ONE_PROJECT)
    plan = explain_file(
        "jobs", "choose_jobs", wanted=50, starved_after=9.0, starved_every=9.0,
        turn_classes=[], turn_projects=[], turn_passes=[], turn_nows=[],
        lanes=[], rooms=[], passes=[], resting=[], flow_projects=[], flow_passes=[], strange=[],
        known_projects=None, known_priorities=None, known_since=None, everywhere=True, most_bytes=16_000_000,
    )  # fmt: skip
    assert plan["Actual Rows"] == 50
    assert {node["Index Name"] for node in nodes(plan) if node.get("Relation Name") == "jobs_job"} <= {
        "jobs_job_ready_idx", "jobs_job_in_lane_idx", "jobs_job_pkey"
    }  # fmt: skip


def test_a_claim_of_the_only_queue_reads_what_it_takes_and_elsewhere_next_to_nothing(as_executor):
    given = {"wanted": 50, "strange": [], "most_bytes": 16_000_000}
    plan = explain_file("jobs", "choose_only_queue", **given)
    assert plan["Actual Rows"] == 0, "forty projects have work"
    assert_bounded(plan, rows=20, blocks=60)
    with connection.cursor() as cursor:
        cursor.execute(ONE_PROJECT)
    plan = explain_file("jobs", "choose_only_queue", **given)
    assert plan["Actual Rows"] == 50
    assert_bounded(plan, rows=400, blocks=600)
    assert {node["Index Name"] for node in nodes(plan) if node.get("Relation Name") == "jobs_job"} == {
        "jobs_job_ready_idx", "jobs_job_pkey"
    }  # fmt: skip


def test_a_claim_reads_none_of_what_the_guard_of_a_batch_holds_and_the_guard_reads_what_has_ended(as_executor):
    with connection.cursor() as cursor:
        cursor.execute(ON_TRIAL)
    plan = explain_file(
        "jobs", "choose_jobs", wanted=200, starved_after=9.0, starved_every=9.0,
        turn_classes=[], turn_projects=[], turn_passes=[], turn_nows=[],
        lanes=[], rooms=[], passes=[], resting=[], flow_projects=[], flow_passes=[], strange=[],
        known_projects=None, known_priorities=None, known_since=None, everywhere=True, most_bytes=16_000_000,
    )  # fmt: skip
    assert plan["Actual Rows"] == 40
    assert_bounded(plan, rows=2_000, blocks=2_000)
    for read in explain_reads(lambda: guards._look(BATCH, 50)):
        assert_bounded(read, rows=300, blocks=200)


def test_a_search_for_a_job_that_may_try_reads_the_jobs_that_it_was_given(as_executor):
    RefusedCalls.objects.create(name="a", project_id="p1", service="http", code="c", failures=1, stopped_at=Now())
    PauseSwitch.objects.create(scope="refused", key="a", paused_by="system")
    PauseSwitch.objects.create(scope="service", key="http", paused_by="user:1")
    held = dict(Job.objects.filter(held=True, status="queued").values_list("pk", "project_id")[:2000])
    plan = explain_file("jobs", "find_free_to_try", ids=list(held), projects=list(held.values()), stop="a")
    assert plan["Actual Rows"] == 0
    assert_bounded(plan, rows=10_000, blocks=40_000)


def test_a_look_at_those_that_wait_for_others_reads_what_they_wait_for(as_executor):
    held = list(Job.objects.filter(held=True, status="queued").values_list("pk", "project_id")[:1000])
    running = [job for job, _ in some("in_progress", 500)]
    waits = [
        Dependency(
            owner_id=owner, on_id=on, of_batch=False, on_batch=on == BATCH, on_failure="cancel", project_id=project
        )
        for number, (owner, project) in enumerate(held)
        for on in (running[number % len(running)], BATCH)
    ]
    with connection.cursor() as cursor:
        cursor.execute(REQUEUES)
        cursor.execute("TRUNCATE jobs_dependency")  # what other tests took back would be read, too
        Dependency.objects.bulk_create(waits)
        # Where it may, the planner now reads all jobs once and not one by one.
        cursor.execute("SET LOCAL random_page_cost = 400; SET LOCAL enable_nestloop = off")
    plan = explain_file("jobs", "choose_dependants", after=UUID(int=0), most=500)
    assert plan["Actual Rows"] == 500
    assert_bounded(plan, rows=2_500, blocks=12_000)


def test_a_claim_in_quarantine_reads_one_suspect(as_executor):
    with connection.cursor() as cursor:
        cursor.execute(claim.OLDEST_FIRST)
    assert_bounded(explain_file("jobs", "choose_suspect", strange=[]), rows=20, blocks=200)


def test_a_claim_of_what_is_new_looks_at_twenty_jobs(as_executor):
    assert_bounded(explain_file("jobs", "choose_new", strange=[]), rows=20, blocks=50)


def test_a_promotion_reads_what_is_due_and_no_more_than_it_was_asked(as_executor):
    assert_bounded(explain_file("jobs", "promote_jobs", most=20, target="queued"), rows=60, blocks=3_000)


@pytest.mark.parametrize("edge", ["claim", "dispatch", "start", "complete", "retry", "cancel", "release"])
def test_a_transition_reads_the_jobs_it_was_given(as_executor, edge):
    transition = TRANSITIONS[edge]
    jobs = [job for source in sorted(transition.sources) for job in some(source.value)][:50]
    assert jobs or edge == "start"  # nothing stays dispatched for long
    ids, tokens = [job for job, _ in jobs], [token for _, token in jobs]
    nothing = [None] * len(ids)
    executor = uuid4() if edge in {"claim", "dispatch"} else None
    plan = explain_file(
        "jobs", "transition_jobs", target=transition.target.value,
        sources=[state.value for state in transition.sources],
        needs_lease=transition.needs_lease, attempt=int(transition.consumes_attempt), crash=0, deferral=0,
        ids=ids, tokens=tokens, delays=[1.0] * len(ids), codes=nothing, messages=nothing, results=nothing,
        data=nothing, keys=nothing, through=transition.through, message="x", executor=executor, lease=30.0, via="live",
    )  # fmt: skip
    assert_bounded(plan, rows=200, blocks=7_000)


@pytest.mark.parametrize("name", ["renew_leases", "record_progress"])
def test_what_an_executor_says_of_its_jobs_reads_those(as_executor, name):
    jobs = some("in_progress")
    figures = {"lease": 30.0, "percents": [1] * 50, "messages": ["x"] * 50}
    plan = explain_file("jobs", name, ids=[job for job, _ in jobs], tokens=[token for _, token in jobs], **figures)
    assert_bounded(plan, rows=200, blocks=5_000)


def test_a_rescue_reads_lapsed_leases_alone(as_executor):
    assert Job.objects.filter(status="in_progress").count() == JOBS / 20
    for plan in explain_reads(lambda: _positive(upkeep.rescue_lapsed())):
        assert_bounded(plan, rows=100, blocks=1_000)


def test_expiry_reads_what_has_expired_alone(as_executor):
    assert Job.objects.filter(expires_at__isnull=False).count() == JOBS / 10
    for plan in explain_reads(lambda: _positive(upkeep.expire_waiting())):
        assert_bounded(plan, rows=150, blocks=1_000)


def _positive(number: int) -> None:
    assert number > 0


LETTERS = """
INSERT INTO jobs_deadletter (id, job_id, project_id, kind, service, payload, error_code, error_class, error_message,
                             remediation, attempts, retry_count, crash_count, fingerprint, resolution, requeued_as_id)
SELECT id, id, project_id, kind, service, '{}', 'x', 'x', 'x', '', '[]', 0, 0, 'f',
       CASE WHEN nth % 2 = 0 THEN 'requeued' END, CASE WHEN nth % 2 = 0 THEN id END
  FROM (SELECT *, row_number() OVER () AS nth FROM jobs_job WHERE status IN ('failed', 'completed')) AS job;
ANALYZE jobs_deadletter;
"""


def test_deletion_reads_one_chunk_of_old_jobs_and_of_many_dead_letters_those_that_name_them(backlog):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LETTERS)
        before = timezone.now() - timedelta(minutes=30)
        plan = explain_file("jobs", "delete_finished_jobs", before=before, most=100)
        assert not [node for node in nodes(plan) if "Seq Scan" in node["Node Type"] and rows_read(node) > 100]
        assert rows_read(plan) == 100 or blocks_touched(plan) < 20_000
        # What PostgreSQL asks for each row deleted, and no plan shows.
        for look in ("job_id", "requeued_as_id"):
            named = DeadLetter.objects.filter(**{look: UUID(int=1)})
            for one in explain_reads(named.exists):
                assert_bounded(one, rows=10, blocks=20)
        cursor.execute(retention.BY_INDEX)
        assert_bounded(explain_file("jobs", "keep_timelines", before=before, most=100), rows=3_000, blocks=12_000)
        transaction.set_rollback(True)


def test_deletion_of_batches_reads_those_that_ended(backlog):
    assert_bounded(explain_file("jobs", "delete_ended_batches", before=timezone.now(), most=100), rows=100, blocks=200)


def test_taking_off_a_pause_reads_one_chunk_of_held_jobs(as_executor):
    with connection.cursor() as cursor:
        cursor.execute(REQUEUES)
        cursor.execute("SET LOCAL enable_nestloop = off")  # what is a join is now one of all rows
    plan = explain_file("jobs", "release_held_jobs", after=UUID(int=0), most=100, batch=None)
    assert_bounded(plan, rows=300, blocks=8_000)


def test_letting_one_batch_go_reads_none_of_the_held_jobs_of_others(as_executor):
    assert Job.objects.filter(held=True).count() > 1_000
    plan = explain_file("jobs", "release_held_jobs", after=UUID(int=0), most=5_000, batch=make_batch().pk)
    assert_bounded(plan, rows=10, blocks=100)


def test_a_chunk_of_retention_reads_the_oldest_finished_jobs(backlog):
    plan = explain_file("jobs", "delete_finished_jobs", before="2099-01-01T00:00Z", most=100)
    assert_bounded(plan, rows=400, blocks=8_000)


# Each ended job has a chain of 20 requeues, and 20,000 dependencies name others.
REQUEUES = """
ALTER TABLE jobs_job DISABLE TRIGGER USER;
UPDATE jobs_job SET origin_id = older.id
  FROM (SELECT id AS later, lag(id) OVER (PARTITION BY nth / 20 ORDER BY nth) AS id
          FROM (SELECT id, row_number() OVER (ORDER BY finished_at DESC) AS nth FROM jobs_job
                 WHERE finished_at IS NOT NULL) AS ended) AS older
 WHERE jobs_job.id = older.later;
INSERT INTO jobs_dependency (owner_id, on_id, of_batch, on_batch, on_failure, project_id)
SELECT id, gen_random_uuid(), false, false, 'cancel', 'p1' FROM jobs_job LIMIT 20000;
ANALYZE jobs_job, jobs_dependency;
"""


def test_deletion_of_requeues_reads_their_chains_and_not_the_dependencies(backlog):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(REQUEUES)
        cursor.execute("SET LOCAL enable_nestloop = off")  # what is a join is now one of all rows
        plan = explain_file("jobs", "delete_finished_jobs", before="2099-01-01T00:00Z", most=10)
        transaction.set_rollback(True)
    assert max(rows_read(node) for node in nodes(plan) if node.get("Relation Name") == "jobs_dependency") <= 100
    looks = [node for one in nodes(plan) if one.get("Subplan Name", "").startswith("SubPlan") for node in nodes(one)]
    assert plan["Actual Rows"] == 10
    assert {one["Index Name"] for one in looks if one.get("Relation Name") == "jobs_dependency"} == {
        "jobs_dependency_on_idx"
    }
    assert max(map(rows_read, looks)) <= 8_000
    assert blocks_touched(plan) <= 40_000


def test_a_submission_reads_no_jobs(backlog):
    given: dict[str, Any] = dict.fromkeys(
        (
            "models",
            "user_ids",
            "retry_policies",
            "scheduled_ats",
            "delays",
            "expires_ats",
            "origins",
            "batch",
            "known_costs",
            "costs_by_unit",
            "credentials",
            "lanes",
            "coalesce_keys",
            "complete_bys",
            "vias",
            "waits",
            "ended_batches",
            "traceparents",
            "unique_keys",
            "debounces",
        )
    )
    given |= {
        "ids": [new_id()], "kinds": ["http.request"], "services": ["http"], "call_types": ["write"], "costs": [1],
        "priorities": ["normal"], "payloads": "[{}]", "idempotency_keys": ["k"], "effect_keys": ["e"], "project": "p1",
        "held": False, "submitted_by": "key:test", "targets": [""], "paths": [0],
    }  # fmt: skip
    assert_bounded(explain_file("jobs", "insert_jobs", **given), rows=10, blocks=500)
    assert_bounded(explain_file("jobs", "read_room", project="p1"), rows=100, blocks=100)


def test_a_look_for_traces_reads_those_of_the_claimed_jobs_alone(as_executor):
    jobs = list(Job.objects.filter(status="queued")[:200].values_list("pk", "project_id"))
    traced: list[Any] = [(pk, project, Json({"traceparent": "00-1-2-01"})) for pk, project in jobs[:3]]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, data) VALUES (%s, %s, 'state_change', %s)",
            traced,
        )
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'jobs_jobevent_trace_idx'::regclass")
        assert cursor.fetchone() == (True,)  # it is on every part
    since = timezone.now() - timedelta(hours=1)
    plan = explain_file(
        "jobs",
        "find_traces",
        ids=[pk for pk, _ in jobs],
        projects=sorted({project for _, project in jobs}),
        since=since,
    )
    assert plan["Actual Rows"] == len(traced)
    version = connection.connection.info.server_version
    # Before PostgreSQL 17 each of many values is looked up by itself, though they stand in the same few blocks.
    assert_bounded(plan, rows=20, blocks=50 if version >= 170_000 else len(jobs) + 50)


def test_a_list_of_jobs_reads_the_newest_until_its_page_is_full(backlog):
    jobs = Job.objects.of_project("p1").defer("payload", "result").order_by("-id")
    [plan] = explain_reads(lambda: list(jobs[:51]))
    assert_bounded(plan, rows=3 * 51 * PROJECTS, blocks=3 * 51 * PROJECTS)


@pytest.mark.parametrize("query", ["kind=rare", "model=rare", "last_error_code=rare", "priority=urgent"])
def test_a_list_of_rare_jobs_reads_a_part_of_the_projects_jobs_and_goes_on_where_it_stopped(
    backlog, monkeypatch, query
):
    monkeypatch.setattr(pagination, "FIRST_WINDOW", 100)
    monkeypatch.setattr(pagination, "WINDOW", 1_000)
    monkeypatch.setattr(pagination, "MAX_WINDOWS_OF_A_PAGE", 3)
    monkeypatch.setattr(pagination, "SEARCH_SECONDS", 60)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ONE_PROJECT)
        for number in (2, 15_000):
            cursor.execute(
                "UPDATE jobs_job SET kind = 'rare', model = 'rare', last_error_code = 'rare', priority = 'urgent'"
                " WHERE id = lpad(to_hex(%s), 32, '0')::uuid",
                [number],
            )
        api, path, pages = Api(key_for("p1")), f"/jobs/?{query}", []
        while path:
            for plan in explain_reads(partial(api.get, path)):
                assert_bounded(plan, rows=1_001, blocks=3_000)
            answer = api.get(path).json()
            pages.append([UUID(job["id"]) for job in answer["results"]])
            path = f"/jobs/?{query}&cursor={answer['next_cursor']}" if answer["next_cursor"] else ""
        transaction.set_rollback(True)
    assert [job for page in pages for job in page] == [UUID(int=15_000), UUID(int=2)]
    assert len(pages) == 20_000 // 3_100 + 1


@pytest.mark.parametrize("query", ["kind=rare", "service=rare", "error_code=rare", "fingerprint=rare", ""])
def test_a_list_of_rare_dead_letters_reads_a_part_of_the_projects_and_none_of_others(backlog, monkeypatch, query):
    for name, value in (("FIRST_WINDOW", 50), ("WINDOW", 200), ("MAX_WINDOWS_OF_A_PAGE", 2), ("SEARCH_SECONDS", 60)):
        monkeypatch.setattr(pagination, name, value)
    with transaction.atomic():
        at = timezone.now()
        rare = {"kind": "rare", "service": "rare", "error_code": "rare", "fingerprint": "rare", "project": "p1"}
        oldest = make_dead_letter(**rare, created_at=at - timedelta(hours=3))
        make_dead_letters(600, project="p1", created_at=at - timedelta(hours=2))
        newest = make_dead_letter(**rare, created_at=at - timedelta(hours=1))
        for of in (at, at - timedelta(hours=4)):
            make_dead_letters(1_500, **{**rare, "project": "p2"}, created_at=of)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE jobs_deadletter SET created_at = created_at + random() * interval '10 minutes'")
            cursor.execute("ANALYZE jobs_deadletter")
        api, path, found = Api(key_for("p1")), f"/dead-letters/?{query}", []
        while path:
            for plan in explain_reads(partial(api.get, path)):
                assert max(rows_read(node) for node in nodes(plan)) <= (202 if query else 2 * 602)
            answer = api.get(path).json()
            found.append([UUID(letter["id"]) for letter in answer["results"]])
            path = f"/dead-letters/?{query}&cursor={answer['next_cursor']}" if answer["next_cursor"] else ""
        transaction.set_rollback(True)
    letters = [letter for page in found for letter in page]
    assert (letters[0], letters[-1]) == (newest.pk, oldest.pk)
    assert len(letters) == (2 if query else 602)
    assert len(found) == (2 if query else 602 // 50 + 1)


def test_a_jobs_events_are_found_by_its_id(backlog):
    [(job_id, _)] = some("completed", 1)
    [plan] = explain_reads(lambda: list(JobEvent.objects.filter(job_id=job_id).order_by("-id")[:1]))
    assert_bounded(plan, rows=20, blocks=200)


def test_the_end_of_an_id_is_looked_for_in_one_window_of_the_primary_key(backlog):
    plan = explain_file("jobs", "find_by_ending", before=None, most=500, ending=b"abcd")
    assert_bounded(plan, rows=500, blocks=1500)


def test_counting_objectives_reads_the_jobs_of_the_part_of_the_log(backlog):
    objective = Objective.objects.create(name="x", within_seconds=60, counts_from=timezone.now() - timedelta(days=1))
    newest = JobEvent.objects.order_by("-id").values_list("id", flat=True)[0]
    plan = explain_file("jobs", "count_objectives", after=newest - 50, upto=newest)
    assert sum(node.get("Index Name") == "jobs_job_pkey" for node in nodes(plan)) == 1
    assert_bounded(plan, rows=200, blocks=2000)
    objective.delete()


def test_noting_ended_jobs_for_webhooks_reads_the_jobs_of_the_part_of_the_log(backlog):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, from_status, to_status)"
            " SELECT id, project_id, 'state_change', 'in_progress', 'completed' FROM jobs_job"
            " WHERE status = 'completed' AND project_id = 'p1' LIMIT 50"
        )
        for tags in ([], ["red"]):
            hook = make_webhook(
                Project.objects.get(pk="p1"), hears_jobs=True, tags=tags, jobs_since=timezone.now() - timedelta(days=1)
            )
        Tag.objects.bulk_create(
            Tag(owner_id=job_id, name="red", project_id="p1")
            for job_id in Job.objects.values_list("pk", flat=True)[:9999]
        )
        newest = JobEvent.objects.order_by("-id").values_list("id", flat=True)[0]
        part = {"after": newest - 50, "upto": newest, "internal": ["queueops.webhook"]}
        part |= {"names": ["test.former"], "others": ["test.now"]}
        plan = explain_file("jobs", "note_ended_jobs", **part)
        assert sum(node.get("Index Name") == "jobs_job_pkey" for node in nodes(plan)) == 1
        assert_bounded(plan, rows=200, blocks=2000)
        hook.delete()
        transaction.set_rollback(True)


def test_what_waits_for_webhooks_that_are_switched_off_is_not_read_to_know_what_is_due(as_executor):
    project = Project.objects.get(pk="p1")
    for enabled, waiting in ((False, 20_000), (True, 0)):
        hook = make_webhook(project, hears_jobs=True, enabled=enabled)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO jobs_webhookjob (webhook_id, job_id, project_id)"
                " SELECT %s, gen_random_uuid(), 'p1' FROM generate_series(1, %s)",
                [hook.pk, waiting],
            )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_webhookjob")
    plan = explain_file("jobs", "look_around", logs=[], sequences=[], passes=0)
    read = [rows_read(node) for node in nodes(plan) if node.get("Relation Name") == "jobs_webhookjob"]
    assert read
    assert sum(read) == 0


def test_counts_are_not_counted(backlog):
    for plan in explain_reads(lambda: (project_counts("p1"), batch_counts([BATCH]))):
        assert not any(BIG_TABLES.match(node.get("Relation Name", "")) for node in nodes(plan))


def test_a_page_of_a_batchs_results_reads_the_batch_and_not_the_table(backlog):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(ONE_PROJECT)
            cursor.execute("UPDATE jobs_job SET batch_id = %s WHERE id < %s", [BATCH, UUID(int=2_000)])
            cursor.execute("SET LOCAL random_page_cost = 8")  # looks one by one are dear: all jobs at once are not
            cursor.execute("ANALYZE jobs_job")
        for after in (0, 1_980):  # the last page, which a walk along the ids would look for to the table's end
            plan = explain_file("jobs", "choose_results", batch=BATCH, after=UUID(int=after), most=101)
            assert_bounded(plan, rows=2_100, blocks=4_500)
        transaction.set_rollback(True)


def test_a_page_of_a_batchs_jobs_reads_the_batch_and_not_what_came_after_it(backlog):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(ONE_PROJECT)
            cursor.execute("UPDATE jobs_job SET batch_id = %s WHERE id < %s", [BATCH, UUID(int=2_000)])
            cursor.execute("ANALYZE jobs_job")
        api = Api(key_for("p1"))
        for path in (f"/batches/{BATCH}/jobs/", f"/jobs/?batch={BATCH}"):
            for plan in explain_reads(partial(api.get, path)):
                assert_bounded(plan, rows=2_100, blocks=4_500)
        transaction.set_rollback(True)
