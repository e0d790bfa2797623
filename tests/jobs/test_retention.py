"""What is deleted when it is old, what stays, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.postgres.functions import TransactionNow as Now  # the clock of the hot SQL: stands still here
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from jobs import cluster
from jobs.features.dependencies.models import Dependency
from jobs.models import (
    Batch,
    BulkOperation,
    DeadLetter,
    IdempotencyRecord,
    Job,
    JobCount,
    JobEvent,
    PauseSwitch,
    Webhook,
    WebhookDelivery,
)
from jobs.services.explain.history import read_history
from jobs.services.operate.dead_letters import discard_dead_letters, requeue_dead_letters
from jobs.services.upkeep import retention
from jobs.services.upkeep.partitions import AUDIT, EVENTS, make_partitions
from jobs.services.upkeep.retention import MAX_PERIOD, apply_retention, find_overdue, rules
from jobs.states import RUNNING, TERMINAL, WAITING, JobState
from jobs.transitions import Move, move_jobs
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops.core.values.identifiers import first_id_at
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_retention
from ratelimits.models import Budget, BudgetHold, BudgetPeriod, QuotaAlert, Spend
from ratelimits.money.standings import BEGINNING
from tests.factories import make_batch, make_dead_letter, make_job, make_jobs, make_project
from tests.support.archiving import old_part, parts
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

LONG_AGO = timedelta(days=40)


def apply(**options: Any) -> Mapping[str, int]:
    return apply_retention(**{"seconds": 60, "share": 1.0, **options}).rows


def ended(job: Job) -> Job:
    """As if it had come and ended long ago."""
    Job.objects.filter(pk=job.pk).update(created_at=Now() - LONG_AGO, finished_at=Now() - LONG_AGO)
    return job


def test_retention_deletes_what_ended_before_and_nothing_else():
    old = [ended(job) for state in (JobState.COMPLETED, JobState.CANCELLED) for job in make_jobs(5, state=state)]
    kept = [make_job(state=state) for state in sorted(WAITING | RUNNING | TERMINAL)]
    assert apply(chunk=4)["finished jobs"] == len(old) == 10
    assert set(Job.objects.values_list("pk", flat=True)) == {job.pk for job in kept}


def test_retention_does_a_bounded_part_a_call_and_then_goes_on():
    for job in make_jobs(7, state=JobState.COMPLETED):
        ended(job)
    assert [apply(seconds=0, chunk=4)["finished jobs"] for _ in range(3)] == [4, 3, 0]


def test_retention_keeps_what_an_open_dead_letter_or_a_requeue_still_needs():
    still_open, discarded, requeued = (make_dead_letter() for _ in range(3))
    discard_dead_letters([discarded.pk], actor="user:1", reason="x")
    new = Job.objects.get(pk=requeue_dead_letters([requeued.pk], actor="user:1").moved[requeued.pk])
    for letter in (still_open, discarded, requeued):
        ended(letter.job)
    assert apply()["finished jobs"] == 1
    assert set(DeadLetter.objects.all()) == {still_open, requeued}
    assert find_overdue() == []
    move_jobs("cancel", [Move(new.pk)])
    ended(new)
    assert apply()["finished jobs"] == 1
    assert apply()["finished jobs"] == 1
    assert set(DeadLetter.objects.all()) == {still_open}


def test_a_backlog_is_worked_off_for_a_share_of_the_time_and_each_table_has_its_turn(monkeypatch):
    clock, turns = [0.0], []

    def rule(name: str) -> retention.RetentionRule:
        def forget(before: datetime, most: int) -> int:
            turns.append(name)
            clock[0] += 0.1
            return most

        return retention.RetentionRule(name, "retention_days", forget, lambda before: None)

    def rest(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(retention, "rules", lambda: [rule("a"), rule("b")])
    monkeypatch.setattr("jobs.services.upkeep.retention.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("jobs.services.upkeep.retention.time.sleep", rest)
    apply_retention(seconds=40)
    assert set(turns[::2]) == {"a"}
    assert set(turns[1::2]) == {"b"}
    assert 0.1 * len(turns) == pytest.approx(40 * retention.DELETING_SHARE, rel=0.05)


def test_a_day_of_the_log_goes_when_it_is_past_whatever_jobs_remain():
    very_old, old, recent = (old_part(EVENTS, days=days) for days in (60, 35, 10))
    waiting = make_job()
    Job.objects.filter(pk=waiting.pk).update(created_at=Now() - timedelta(days=35))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobs_jobevent WHERE job_id = %s", [waiting.pk])
    assert apply()["days of the log"] == 2
    assert parts(EVENTS) & {very_old, old, recent} == {recent}
    assert read_history(waiting, most=9).pruned == "What was logged more than 30 days ago is deleted."


def test_a_table_that_cannot_be_worked_on_keeps_none_of_the_others(monkeypatch):
    def broken(before: datetime, most: int) -> int:
        raise RuntimeError("no")

    ended(make_job(state=JobState.COMPLETED))
    others = rules()
    failing = retention.RetentionRule("broken", None, broken, lambda before: None)
    monkeypatch.setattr(retention, "rules", lambda: [failing, *others])
    assert apply()["finished jobs"] == 1


def test_the_next_task_goes_on_with_a_backlog_and_a_second_keeper_does_nothing(monkeypatch):
    handed_on: list[tuple[str, ...]] = []
    monkeypatch.setattr(cluster, "async_task", lambda *task: handed_on.append(task))
    monkeypatch.setattr(retention, "apply_retention", lambda seconds: retention.Deleted({}, is_through=bool(handed_on)))
    assert cluster.apply_retention()["tasks"] == 0
    [(name, holder)] = handed_on
    assert name == "jobs.cluster.apply_retention"
    assert cluster.apply_retention() == {}
    assert cluster.apply_retention(holder) != {}
    assert len(handed_on) == 1


def long_dead(*, clock_ahead: timedelta = timedelta()) -> DeadLetter:
    """An open dead letter whose job was made and failed 60 days ago, and the log's day."""
    old_part(EVENTS, days=60)
    letter = make_dead_letter()
    then = Now() - timedelta(days=60)
    old_id = Job(id=first_id_at(timezone.now() - timedelta(days=60) + clock_ahead)).pk
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs_deadletter SET job_id = %s WHERE id = %s", [old_id, letter.pk])
        cursor.execute("UPDATE jobs_job SET id = %s WHERE id = %s", [old_id, letter.job_id])
        cursor.execute("UPDATE jobs_jobevent SET job_id = %s WHERE job_id = %s", [old_id, letter.job_id])
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, message, progress_percent)"
            " VALUES (%s, 'acme', 'progress', 'half', 50)",
            [old_id],
        )
        cursor.execute("UPDATE jobs_jobevent SET created_at = created_at - interval '60 days'")
        cursor.execute("SET LOCAL session_replication_role = origin")
    Job.objects.filter(pk=old_id).update(created_at=then, finished_at=then)
    return DeadLetter.objects.get(pk=letter.pk)


def test_an_open_dead_letter_keeps_no_day_of_the_log_and_tells_what_was_in_it(admin_client: Client):
    letter = long_dead()
    before = read_history(letter.job, most=500)
    assert before.pruned == ""
    assert apply(chunk=1)["days of the log"] == 1
    assert not JobEvent.objects.filter(job_id=letter.job_id).exists()
    discard_dead_letters([letter.pk], actor="user:1", reason="late")
    after = read_history(letter.job, most=500)
    shown = [(event.created_at, event.event_type, event.to_status, event.message, event.data) for event in after.events]
    kept = [(one.created_at, one.event_type, one.to_status, one.message, one.data) for one in before.events]
    assert shown[:-1] == [line for line in kept if line[1] != "progress"]
    assert shown[-1][3] == "late"
    assert "are those that its dead letter kept. 1 more were left out" in after.pruned
    page = admin_client.get(f"/admin/jobs/job/{letter.job_id}/change/").content.decode()
    assert after.pruned in page


def test_a_day_stays_until_its_dead_letters_have_what_they_need_of_it(monkeypatch):
    letter = long_dead()
    with transaction.atomic():
        DeadLetter.objects.select_for_update().get(pk=letter.pk)
        days = [rule for rule in rules() if rule.name == "days of the log"]
        monkeypatch.setattr(retention, "rules", lambda: days)
        assert apply()["days of the log"] == 0
    assert JobEvent.objects.filter(job_id=letter.job_id).exists()


def test_a_dead_letter_keeps_its_newest_events_and_was_made_by_a_clock_that_is_ahead():
    """Of a job made a few hours before the oldest day that is kept, by a clock that is most of a day ahead."""
    letter = long_dead(clock_ahead=timedelta(days=30, hours=20))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_jobevent (job_id, project_id, event_type, message)"
            " SELECT %s, 'acme', 'error', number FROM generate_series(1, 301) AS number",
            [letter.job_id],
        )
    apply()
    letter.refresh_from_db()
    assert letter.timeline is not None
    assert [event["message"] for event in letter.timeline["events"]] == [str(number) for number in range(2, 302)]


@pytest.mark.proves("S15")
def test_old_months_of_the_audit_trail_go_whole_and_nothing_else_removes_an_entry():
    name = old_part(AUDIT, days=500)
    entry = trail.record(actor="user:1", action="x", target="y")
    for statement in ("DELETE FROM jobs_auditentry", "UPDATE jobs_auditentry SET actor = 'z'"):
        with pytest.raises(Exception, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM jobs_auditentry WHERE id = %s", [entry.pk])
        assert cursor.fetchone() == (AUDIT.part_of(datetime.now(UTC).date())[0],)
    assert apply()["months of the audit trail"] == 1
    assert name not in parts(AUDIT)
    assert AuditEntry.objects.get() == entry


def test_a_month_of_the_audit_trail_has_the_bounds_of_the_month():
    assert AUDIT.part_of(date(2026, 12, 31)) == ("jobs_auditentry_202612", "2026-12-01 00:00+00", "2027-01-01 00:00+00")
    assert AUDIT.part_of(date(2026, 2, 1)) == ("jobs_auditentry_202602", "2026-02-01 00:00+00", "2026-03-01 00:00+00")
    make_partitions()  # of a day that has begun since the database was made
    assert make_partitions() == []


def test_a_batch_goes_when_it_ended_long_ago_and_its_jobs_are_gone():
    ended_ago = (timezone.now() - timedelta(days=days) for days in (91, 91, 91, 89))
    empty, full, told, recent = (make_batch(finished_at=at) for at in ended_ago)
    make_job(batch=full)
    webhook = Webhook.objects.create(project=make_project(), url="https://hook.example")
    WebhookDelivery.objects.create(webhook=webhook, batch=told, job=make_job())
    JobCount.objects.create(project_id="acme", batch_id=empty.pk, shard=0, completed=3)
    PauseSwitch.objects.create(scope="batch", key=str(empty.pk), paused_by="user:1")
    assert apply()["batches"] == 1
    assert set(Batch.objects.all()) == {full, told, recent}
    assert not JobCount.objects.filter(batch_id=empty.pk).exists()
    assert not PauseSwitch.objects.exists()


def aged(row: Model, column: str, days: float) -> Any:
    type(row)._default_manager.filter(pk=row.pk).update(**{column: Now() - timedelta(days=days)})
    return row


def alert(days: float) -> Any:
    made = QuotaAlert.objects.create(kind="usage", severity="notice", subject=str(days), message="x")
    QuotaAlert.objects.filter(pk=made.pk).update(resolved_at=Now() - timedelta(days=days))
    return aged(made, "opened_at", days)


def operation(days: float) -> Any:
    made = BulkOperation.objects.create(action="cancel_jobs", parameters={}, actor="user:1", total=0, status="done")
    return aged(made, "finished_at", days)


def answer(days: float) -> Any:
    made = IdempotencyRecord.objects.create(project=make_project(), key=str(days), request_digest="x")
    return aged(made, "created_at", days)


def session(days: float) -> Session:
    return Session.objects.create(
        session_key=str(days), session_data="", expire_date=timezone.now() - timedelta(days=days)
    )


def admins_line(days: float) -> Any:
    user = User.objects.get_or_create(username="anna")[0]
    made = LogEntry.objects.create(user=user, action_flag=1, object_repr="x")
    return aged(made, "action_time", days)


def spend(days: float) -> Any:
    return Spend.objects.create(
        job_id=uuid4(), token=1, project=make_project(), provider="openai", at=Now() - timedelta(days=days), money=1
    )


def lost_hold(days: float) -> Any:
    budget = Budget.objects.get_or_create(project=make_project(), name="b", amount=1)[0]
    period = BudgetPeriod.objects.get_or_create(budget=budget, project=make_project(), starts_at=BEGINNING)[0]
    of = {"period": period, "project": make_project(), "provider": "openai", "at": Now()}
    made = BudgetHold.objects.create(job_id=uuid4(), token=1, amount=1, lost=True, expires_at=Now(), **of)
    return aged(made, "expires_at", days)


def past_period(days: float) -> Any:
    budget = Budget.objects.get_or_create(project=make_project(), name="b", amount=1)[0]
    made = BudgetPeriod.objects.create(budget=budget, project=make_project(), key=str(days), starts_at=Now())
    return aged(made, "starts_at", days + MAX_PERIOD.days)


@every_case(
    ("name", "make", "days"),
    [
        ("spend", spend, 400),
        ("what calls held that nobody heard of", lost_hold, 30),
        ("past periods of budgets", past_period, 30),
        ("resolved alerts", alert, 30),
        ("bulk operations", operation, 90),
        ("stored answers", answer, 7),
        ("sessions that are over", session, 0),
        ("lines of the admin's own log", admins_line, 400),
    ],
    undone=True,
)
def test_what_is_older_than_its_retention_goes_and_is_told_of_while_it_does_not(
    name: str, make: Callable[[float], Model], days: int
):
    late, old, young = make(days + 2), make(days + 0.5), make(days - 0.5)
    assert [one.name for one in find_overdue()] == [name]
    found = examine_retention()
    assert (found.verdict, found.observation.startswith(f"{name}: kept {days} days")) == (DoctorVerdict.WARN, True)
    assert apply(chunk=1)[name] == 2
    assert set(type(young)._default_manager.all()) == {young}
    assert examine_retention().verdict is DoctorVerdict.OK
    assert old.pk != late.pk


def test_what_is_not_over_stays_however_old_it_is():
    running = BulkOperation.objects.create(action="cancel_jobs", parameters={}, actor="user:1", total=0)
    unresolved = aged(alert(400), "opened_at", 400)
    QuotaAlert.objects.filter(pk=unresolved.pk).update(resolved_at=None)
    open_batch = aged(make_batch(), "created_at", 400)
    holds, told, endless = past_period(400), past_period(401), past_period(402)
    BudgetPeriod.objects.filter(pk=holds.pk).update(held=1)
    BudgetPeriod.objects.filter(pk=told.pk).update(alerted_level=60)
    BudgetPeriod.objects.filter(pk=endless.pk).update(starts_at=BEGINNING)
    aged(running, "created_at", 400)
    apply()
    assert BulkOperation.objects.get() == running
    assert QuotaAlert.objects.get() == unresolved
    assert Batch.objects.get() == open_batch
    assert set(BudgetPeriod.objects.all()) == {holds, told, endless}


def test_what_a_waiting_job_still_depends_on_stays_and_is_not_told_of():
    needed, batch = make_job(state=JobState.COMPLETED), aged(make_batch(), "finished_at", 400)
    ended(needed)
    for on in (needed, batch):
        waiting = make_job()
        Dependency.objects.create(
            owner_id=waiting.pk, on_id=on.pk, of_batch=False, on_batch=on is batch, project=waiting.project
        )
    assert not any(apply().values())
    assert find_overdue() == []
    Dependency.objects.all().delete()
    assert [one.name for one in find_overdue()] == ["finished jobs", "batches"]
    assert {name: count for name, count in apply().items() if count} == {"finished jobs": 1, "batches": 1}


def test_jobs_that_nobody_deletes_are_told_of():
    ended(make_job(state=JobState.COMPLETED))
    assert [(one.name, one.days) for one in find_overdue()] == [("finished jobs", 30)]
