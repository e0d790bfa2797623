"""Schedules submit what is due: once each, within bounds, and never while they are not to."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.db.models import F

from jobs.executor.duties import Duties
from jobs.features.schedules import fire_schedules as firing
from jobs.features.schedules.errors import BadSchedule, UnknownSchedule
from jobs.features.schedules.fire_schedules import ScheduleRounds, fire_schedules
from jobs.features.schedules.schedules import (
    delete_schedule,
    last_fires,
    next_fires,
    pause_schedule,
    preview_schedule,
    resume_schedule,
    run_schedule,
    save_schedule,
)
from jobs.features.schedules.watch import watch_schedules
from jobs.models import Batch, Job, JobEvent, RetryPolicy, Schedule, ScheduleFire
from jobs.services.operate import epochs, pauses
from jobs.services.submit.submit import QueueFull, submit_job
from jobs.services.upkeep.retention import apply_retention
from queueops.audit.models import AuditEntry
from queueops.core.clock import database_moment
from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.moves import ProjectMoved
from queueops.tenancy.secrets.encryption import CannotRead, forget_encrypted
from ratelimits.models import QuotaAlert
from tests.factories import KIND, make_project, make_schedule
from tests.support.cases import every_case
from tests.support.plans import assert_bounded, explain_reads
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db

ACTOR = "user:1"
PAYLOAD = {"method": "GET", "url": "http://127.0.0.1:9/"}
JOB: dict[str, Any] = {"kind": KIND, "payload": PAYLOAD}
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "FIRING_SECONDS", 60.0)  # or a pass on a busy machine would leave some to the next


def due_since(schedule: Schedule, ago: timedelta) -> datetime:
    """As if nobody had looked for so long: its first fire that was not made was due then. Returns when."""
    first = next(schedule.times.after(database_moment() - ago))
    rows = Schedule.objects.filter(pk=schedule.pk)
    rows.update(next_due_at=first.due_at, next_fire_at=first.fire_at)
    return first.due_at


def keys() -> list[str]:
    return [str(key) for key in Job.objects.order_by("idempotency_key").values_list("idempotency_key", flat=True)]


def fires() -> list[ScheduleFire]:
    return list(ScheduleFire.objects.order_by("due_at"))


def test_a_fire_submits_the_job_and_the_next_one_is_an_hour_later():
    schedule = make_schedule(jobs=[{**JOB, "priority": "low", "tags": ["nightly"]}])
    assert fire_schedules() == 0
    due_at = schedule.next_due_at
    assert due_at is not None
    assert fire_schedules(at=due_at) == 1
    job = Job.objects.get()
    assert (job.project_id, job.kind, job.payload, job.priority) == ("acme", KIND, PAYLOAD, "low")
    [fire] = fires()
    assert (fire.outcome, fire.job_id, fire.due_at, fire.left_out) == ("submitted", job.pk, due_at, 0)
    schedule.refresh_from_db()
    assert schedule.next_due_at == due_at + HOUR
    assert fire_schedules(at=due_at + timedelta(minutes=59)) == 0
    assert JobEvent.objects.get(job_id=job.pk).message == f"schedule:{schedule.pk}"


def test_the_last_fire_of_a_schedule_is_found_without_reading_the_others():
    schedules = [make_schedule(f"s{number}") for number in range(3)]
    now = database_moment()
    rows = [
        ScheduleFire(schedule=one, project_id="acme", due_at=now - minute * timedelta(minutes=1), outcome="submitted")
        for one in schedules[:2]
        for minute in range(2000)
    ]
    ScheduleFire.objects.bulk_create(rows)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_schedulefire")
    ids = [one.pk for one in schedules]
    assert {pk: fire.due_at for pk, fire in last_fires(ids).items()} == dict.fromkeys(ids[:2], now)
    for plan in explain_reads(lambda: last_fires(ids)):
        assert_bounded(plan, rows=len(ids), blocks=100)


def test_several_jobs_are_a_batch_of_the_schedules_name():
    schedule = make_schedule("import", jobs=[JOB, {**JOB, "priority": "urgent"}])
    fire_schedules(at=schedule.next_due_at)
    batch = Batch.objects.get()
    assert (batch.name, batch.total, batch.submitted_by) == ("import", 2, f"schedule:{schedule.pk}")
    assert fires()[0].batch_id == batch.pk
    assert set(Job.objects.values_list("batch_id", flat=True)) == {batch.pk}


# Three hours and a half without a worker, of a schedule of every half hour.
AWAY: dict[str, tuple[dict[str, Any], int, int]] = {
    "skip": ({"missed": "skip"}, 0, 7),
    "once": ({"missed": "once"}, 1, 6),
    "all": ({"missed": "all", "most_missed": 100}, 7, 0),
    "the newest of all": ({"missed": "all", "most_missed": 3}, 3, 4),
}


@every_case("case", AWAY, undone=True)
def test_after_three_hours_down_the_policy_says_what_is_made_up_for(case):
    figures, made, left_out = AWAY[case]
    schedule = make_schedule(cron="*/30 * * * *", **figures)
    first = due_since(schedule, timedelta(hours=5))
    now = first + timedelta(hours=3, minutes=10)
    assert fire_schedules(at=now) == max(1, made)
    newest = first + timedelta(hours=3)
    wanted = [newest - number * timedelta(minutes=30) for number in range(made)][::-1]
    assert [fire.due_at for fire in fires() if fire.outcome == "submitted"] == wanted
    assert Job.objects.count() == made
    assert sum(fire.left_out for fire in fires()) == left_out
    assert fires()[0].left_out == left_out  # with the first that was made, or the line that says that none was
    schedule.refresh_from_db()
    assert schedule.next_due_at == newest + timedelta(minutes=30)
    assert fire_schedules(at=now) == 0


def test_a_fire_in_time_is_no_missed_one():
    schedule = make_schedule(missed="skip")
    assert schedule.next_due_at is not None
    fire_schedules(at=schedule.next_due_at + timedelta(seconds=59))
    assert [fire.outcome for fire in fires()] == ["submitted"]


def test_after_its_end_it_does_not_fire():
    schedule = make_schedule()
    last = schedule.next_due_at
    assert last is not None
    save_schedule(schedule.pk, {"ends_at": last}, project_id="acme", actor=ACTOR)
    fire_schedules(at=last + timedelta(days=3))
    schedule.refresh_from_db()
    assert (schedule.next_due_at, schedule.next_fire_at, len(fires())) == (None, None, 1)
    assert next_fires(schedule) == []
    assert fire_schedules(at=last + timedelta(days=9)) == 0


def test_jitter_is_kept_with_the_row():
    schedule = make_schedule(jitter_seconds=600)
    assert schedule.next_due_at is not None
    assert schedule.next_fire_at == next_fires(schedule)[0].fire_at
    late = schedule.next_fire_at
    assert late is not None
    assert schedule.next_due_at <= late < schedule.next_due_at + timedelta(seconds=600)
    if late > schedule.next_due_at:
        assert fire_schedules(at=late - timedelta(seconds=1)) == 0
    assert fire_schedules(at=late) == 1
    assert fires()[0].due_at == schedule.next_due_at


@every_case("scope", [("global", ""), ("project", "acme")], undone=True)
def test_nothing_fires_while_the_project_or_everything_is_paused(scope):
    schedule = make_schedule(missed="all")
    other = make_schedule(project="beta")
    first = due_since(schedule, timedelta(hours=4))
    pauses.pause_scope(*scope, actor=ACTOR)
    fire_schedules(at=first + HOUR)
    assert not Job.objects.filter(project_id="acme").exists()
    fire_schedules(at=other.next_due_at)
    assert Job.objects.filter(project_id="beta").exists() is (scope[0] == "project")
    pauses.resume_scope(*scope, actor=ACTOR)
    fire_schedules(at=first + HOUR)
    assert Job.objects.filter(project_id="acme").count() == 2


def test_after_a_restore_nothing_fires_before_somebody_resumes():
    schedule = make_schedule()
    first = due_since(schedule, timedelta(hours=4))
    epochs.declare_restored(actor="system")
    assert fire_schedules() == 0
    pauses.resume_scope("global", "", actor=ACTOR)
    assert fire_schedules() == 1
    assert fires()[0].due_at > first


@every_case("move", [ProjectMove.MOVING, ProjectMove.MOVED], undone=True)
def test_a_project_that_has_moved_is_submitted_nothing_here(move):
    schedule = make_schedule()
    Project.objects.update(move=move)
    fire_schedules(at=schedule.next_due_at)
    schedule.refresh_from_db()
    assert (Job.objects.count(), schedule.next_due_at is not None) == (0, True)
    Project.objects.update(move=ProjectMove.MOVED)
    with pytest.raises(ProjectMoved):
        run_schedule(schedule.pk, project_id="acme", actor=ACTOR)


def test_a_paused_schedule_fires_from_its_resume_on():
    schedule = make_schedule(missed="all")
    due_since(schedule, timedelta(hours=4))
    pause_schedule(schedule.pk, project_id="acme", actor=ACTOR, reason="holidays")
    assert fire_schedules(at=database_moment() + timedelta(days=2)) == 0
    resumed = resume_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    assert resumed.next_due_at is not None
    assert resumed.next_due_at > database_moment()
    assert fire_schedules() == 0


def test_run_now_submits_and_leaves_the_next_fire():
    schedule = make_schedule()
    pause_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    made = [run_schedule(schedule.pk, project_id="acme", actor=ACTOR) for _ in range(2)]
    assert [one.asked_by for one in made] == [ACTOR, ACTOR]
    assert Job.objects.filter(pk__in=[one.job_id for one in made]).count() == 2
    resumed = resume_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    assert resumed.next_due_at == schedule.next_due_at


def test_a_refusal_is_told_and_the_next_fire_is_another_try():
    schedule = make_schedule()
    due_at = schedule.next_due_at
    assert due_at is not None
    Project.objects.update(max_waiting_jobs=0)
    fire_schedules(at=due_at)
    [refused] = fires()
    assert (refused.outcome, refused.error_code) == ("refused", "queue_full")
    assert "allowed" in refused.error_message
    watch_schedules()
    assert not QuotaAlert.objects.exists()  # once may be a bad moment
    fire_schedules(at=due_at + HOUR)
    watch_schedules()
    [alert] = QuotaAlert.objects.all()
    assert (alert.kind, alert.subject, alert.resolved_at) == ("schedule", str(schedule.pk), None)
    assert "queue_full" in alert.message
    with pytest.raises(QueueFull):
        run_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    Project.objects.update(max_waiting_jobs=10)
    fire_schedules(at=due_at + 2 * HOUR)
    watch_schedules()
    assert [fire.outcome for fire in fires()] == ["refused", "refused", "submitted"]
    assert QuotaAlert.objects.get().resolved_at is not None


OF_EARLIER_RELEASES = {**JOB, "cost": "5", "delay_seconds": "1.5", "unique_in": "project"}


@every_case("jobs", [[OF_EARLIER_RELEASES], [{**JOB, "cost": True}, OF_EARLIER_RELEASES]], undone=True)
def test_jobs_that_an_earlier_release_took_and_stored_are_submitted(jobs: list[dict[str, Any]]):
    schedule = make_schedule()
    Schedule.objects.update(jobs=jobs)
    assert schedule.next_due_at is not None
    fire_schedules(at=schedule.next_due_at)
    assert [(fire.outcome, fire.error_message) for fire in fires()] == [("submitted", "")]
    assert list(Job.objects.order_by("pk").values_list("cost", flat=True)) == [1, 5][-len(jobs) :]
    run_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    assert Job.objects.exclude(scheduled_at=None).count() == 2
    renamed = save_schedule(schedule.pk, {"name": "renamed"}, project_id="acme", actor=ACTOR)
    assert renamed.jobs[-1] == {**JOB, "cost": 5, "delay_seconds": 1.5}
    with pytest.raises(BadSchedule):
        save_schedule(schedule.pk, {"jobs": jobs}, project_id="acme", actor=ACTOR)


def test_one_bad_job_of_a_batch_refuses_the_whole_fire():
    RetryPolicy.objects.create(name="ours", initial_seconds=1, multiplier=2, max_delay_seconds=9, max_retries=1)
    schedule = make_schedule(jobs=[JOB, {**JOB, "retry_policy": "ours"}])
    RetryPolicy.objects.filter(name="ours").delete()
    fire_schedules(at=schedule.next_due_at)
    assert (Job.objects.count(), Batch.objects.count()) == (0, 0)
    assert fires()[0].error_code == "batch_rejected"
    assert "retry policy" in fires()[0].error_message


def test_what_a_handler_raises_of_its_own_stops_no_other_schedule(monkeypatch):
    bad, good = make_schedule("bad", jobs=[{**JOB, "priority": "urgent"}]), make_schedule("good")

    def raising(spec: Any, **given: Any) -> Any:
        if spec.priority == "urgent":
            raise RuntimeError("secret=1")
        return submit_job(spec, **given)

    monkeypatch.setattr(firing, "submit_job", raising)
    fire_schedules(at=bad.next_due_at)
    assert {fire.schedule_id: (fire.outcome, fire.error_code) for fire in fires()} == {
        bad.pk: ("refused", "internal_error"),
        good.pk: ("submitted", ""),
    }
    assert "secret" not in ScheduleFire.objects.get(schedule=bad).error_message


def test_a_fire_that_was_made_already_is_passed_over_and_not_tried_each_second():
    schedule, other = make_schedule(), make_schedule("other")
    due_at = schedule.next_due_at
    assert due_at is not None
    ScheduleFire.objects.create(schedule=schedule, project_id="acme", due_at=due_at, outcome="submitted")
    assert fire_schedules(at=due_at) == 2
    assert [fire.schedule_id for fire in ScheduleFire.objects.exclude(job_id=None)] == [other.pk]
    schedule.refresh_from_db()
    assert (schedule.next_due_at, fire_schedules(at=due_at)) == (due_at + HOUR, 0)


def test_what_the_database_refuses_is_a_refusal_and_stops_no_other_schedule():
    bad, good = make_schedule("bad", jobs=[{**JOB, "priority": "urgent"}]), make_schedule("good")
    due_at = bad.next_due_at
    assert due_at is not None
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # or the table could not be altered in this transaction
        cursor.execute("ALTER TABLE jobs_job ADD CONSTRAINT never CHECK (priority <> 'urgent') NOT VALID")
    for moment in (due_at, due_at + HOUR):
        fire_schedules(at=moment)
    assert Counter((fire.schedule_id, fire.outcome, fire.error_code) for fire in fires()) == {
        (bad.pk, "refused", "internal_error"): 2,
        (good.pk, "submitted", ""): 2,
    }
    watch_schedules()
    assert "was refused 2 times in a row: IntegrityError" in QuotaAlert.objects.get().message


def test_a_fire_that_one_host_cannot_make_rests_there_is_told_and_is_made_by_another(monkeypatch):
    monkeypatch.setattr(firing, "FIRED_AT_ONCE", 1)
    bad, good = make_schedule("bad"), make_schedule("good")
    for schedule, hours in ((good, 2), (bad, 3)):
        due_since(schedule, hours * HOUR)
    Schedule.objects.filter(pk=bad.pk).update(time_zone="Mars/Olympus")
    first, second = ScheduleRounds(uuid4()), ScheduleRounds(uuid4())
    for now in (1.0, 2.0, 3.0):
        first.do(now)
    assert [fire.schedule_id for fire in fires()] == [good.pk]
    watch_schedules()
    [alert] = QuotaAlert.objects.all()
    assert alert.message.startswith("The schedule bad of acme has been due since")
    assert alert.message.endswith("and no host has made its fire; its time zone Mars/Olympus is not known here")
    Schedule.objects.filter(pk=bad.pk).update(time_zone="UTC")
    first.do(4.0)  # a host's zones stay as they are for a minute and more
    assert len(fires()) == 1
    second.do(4.0)
    assert {fire.schedule_id for fire in fires()} == {good.pk, bad.pk}
    watch_schedules()
    assert QuotaAlert.objects.get().resolved_at is not None


def test_a_schedule_whose_payload_key_is_missing_is_refused_nothing_and_waits_for_a_host_that_has_it(settings):
    def keys_are(*pairs: tuple[str, str]) -> None:
        settings.QUEUEOPS = replace(django_settings.QUEUEOPS, payload_keys=pairs, debug=False)

    key = ("k1", Fernet.generate_key().decode())
    keys_are(key)
    make_project("acme")
    Project.objects.update(encrypted=True)
    forget_encrypted()
    schedule = make_schedule()
    keys_are()
    assert fire_schedules(at=schedule.next_due_at) == 0
    with pytest.raises(CannotRead):
        run_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    assert fires() == []
    keys_are(key)
    assert fire_schedules(at=schedule.next_due_at) == 1
    assert fires()[0].outcome == "submitted"


def test_a_crash_between_the_jobs_and_the_row_leaves_neither_and_the_next_makes_both(monkeypatch):
    schedule = make_schedule(jobs=[JOB, JOB])
    save = Schedule.save
    monkeypatch.setattr(Schedule, "save", lambda *args, **given: (_ for _ in ()).throw(SystemExit))
    with pytest.raises(SystemExit):
        fire_schedules(at=schedule.next_due_at)
    assert (Job.objects.count(), len(fires())) == (0, 0)
    monkeypatch.setattr(Schedule, "save", save)
    fire_schedules(at=schedule.next_due_at)
    assert (Job.objects.count(), len(fires())) == (2, 1)


def fires_due(row: Schedule, now: datetime) -> int:
    assert row.next_due_at is not None
    return len(row.times.due(since=row.next_due_at, now=now, missed=row.missed, most=row.most_missed).fires)


@pytest.mark.django_db(transaction=True)
def test_eight_processes_make_each_fire_once():
    schedules = [make_schedule(f"s{number}", missed="all", cron="*/20 * * * *") for number in range(25)]
    for schedule in schedules:
        due_since(schedule, timedelta(hours=1, minutes=1))  # three or four fires each
    now = database_moment()
    wanted = Counter({row.pk: fires_due(row, now) for row in Schedule.objects.all()})
    made = run_together(8, lambda _: sum(fire_schedules(at=now) for _ in range(5)))
    while fire_schedules(at=now):  # what every pass met locked
        made.append(0)
    assert min(wanted.values()) >= 3
    assert Counter(fire.schedule_id for fire in fires()) == wanted
    assert {fire.outcome for fire in fires()} == {"submitted"}
    assert Job.objects.count() == sum(wanted.values()) == len(set(keys()))
    assert sum(count > 0 for count in made) > 1, "they did not race"


@pytest.mark.django_db(transaction=True)
def test_a_row_that_another_process_holds_is_passed_over():
    held, free = make_schedule("held"), make_schedule("free")
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            list(Schedule.objects.select_for_update().filter(pk=held.pk))
            locked.set()
            done.wait(60)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(60)
    fire_schedules(at=held.next_due_at)
    done.set()
    holder.join(60)
    assert [fire.schedule_id for fire in fires()] == [free.pk]


def test_the_duty_of_executors_fires_them():
    schedule = make_schedule()
    Schedule.objects.update(next_due_at=F("next_due_at") - HOUR, next_fire_at=F("next_fire_at") - HOUR)
    duties = Duties(uuid4(), sweep_seconds=5, silent_seconds=30, stuck_seconds=60)
    duties.do(0.0)
    assert [fire.schedule_id for fire in fires()] == [schedule.pk]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "cron": ({"cron": "0 0 30 2 *"}, "cron"),
    "zone": ({"time_zone": "Mars/Olympus"}, "time_zone"),
    "over before it begins": ({"ends_at": datetime(2020, 1, 1, tzinfo=UTC)}, "ends_at"),
    "no jobs": ({"jobs": []}, "jobs"),
    "jobs that are none": ({"jobs": ["x"]}, "jobs"),
    "too many": ({"jobs": [JOB] * 1001}, "jobs"),
    "too large": ({"jobs": [{**JOB, "payload": {**PAYLOAD, "body": "x" * 1_000_000}}]}, "jobs"),
    "unknown kind": ({"jobs": [JOB, {"kind": "no.such"}]}, "jobs.1"),
    "bad payload": ({"jobs": [{"kind": KIND, "payload": {"method": "GET"}}]}, "jobs.0.payload.url"),
    "a time of its own": ({"jobs": [{**JOB, "scheduled_at": "2030-01-01T00:00:00Z"}]}, "jobs.0.scheduled_at"),
    "a key of its own": ({"jobs": [{**JOB, "idempotency_key": "x"}]}, "jobs.0.idempotency_key"),
    "policy": ({"missed": "maybe"}, "missed"),
    "jitter": ({"jitter_seconds": 3601}, "jitter_seconds"),
    "made up for": ({"most_missed": 101}, "most_missed"),
    "name": ({"name": ""}, "name"),
}


@every_case("case", BAD, undone=True)
def test_what_could_not_be_submitted_is_refused_when_it_is_stored(case):
    figures, field = BAD[case]
    make_project("acme")
    with pytest.raises(BadSchedule) as refused:
        make_schedule(**figures)
    assert field in refused.value.fields
    with pytest.raises(BadSchedule):
        preview_schedule({"cron": "0 * * * *", "jobs": [JOB], **figures}, project_id="acme")
    assert not Schedule.objects.exists()


def test_a_name_is_one_projects_once():
    make_schedule("x")
    make_schedule("x", project="beta")
    with pytest.raises(BadSchedule):
        make_schedule("x")
    assert len(preview_schedule({"name": "x", "cron": "0 * * * *", "jobs": [JOB]}, project_id="acme")) == 5


def test_a_change_of_the_times_counts_from_now_on_and_another_leaves_them():
    schedule = make_schedule()
    due_since(schedule, timedelta(hours=4))
    waiting = Schedule.objects.get().next_due_at
    save_schedule(schedule.pk, {"name": "other"}, project_id="acme", actor=ACTOR)
    assert Schedule.objects.get().next_due_at == waiting
    changed = save_schedule(schedule.pk, {"cron": "30 * * * *"}, project_id="acme", actor=ACTOR)
    assert changed.next_due_at is not None
    assert changed.next_due_at > database_moment()


def test_every_change_is_audited_without_a_payload():
    schedule = make_schedule(jobs=[{**JOB, "payload": {**PAYLOAD, "headers": {"X-Token": "sesame"}}}])
    own: dict[str, Any] = {"project_id": "acme", "actor": ACTOR, "reason": "asked for"}
    save_schedule(schedule.pk, {"jobs": [JOB]}, **own)
    pause_schedule(schedule.pk, **own)
    resume_schedule(schedule.pk, **own)
    run_schedule(schedule.pk, **own)
    delete_schedule(schedule.pk, **own)
    entries = list(AuditEntry.objects.filter(target=f"schedule {schedule.pk}").order_by("pk"))
    assert [entry.action for entry in entries] == [
        f"{verb}_schedule" for verb in ("create", "change", "pause", "resume", "run", "delete")
    ]
    assert (entries[1].after or {})["other_jobs"] is True
    assert not any("sesame" in f"{entry.before}{entry.after}" for entry in entries)
    assert (Schedule.objects.count(), ScheduleFire.objects.count(), Job.objects.count()) == (0, 0, 1)


def test_another_projects_schedule_is_not_there():
    schedule = make_schedule(project="beta")
    for verb in (pause_schedule, resume_schedule, run_schedule, delete_schedule):
        with pytest.raises(UnknownSchedule):
            verb(schedule.pk, project_id="acme", actor=ACTOR)
    with pytest.raises(UnknownSchedule):
        save_schedule(schedule.pk, {"name": "y"}, project_id="acme", actor=ACTOR)


def test_old_fires_go_with_the_jobs_they_made():
    schedule = make_schedule()
    run_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    run_schedule(schedule.pk, project_id="acme", actor=ACTOR)
    old = fires()[0]
    ScheduleFire.objects.filter(pk=old.pk).update(created_at=F("created_at") - timedelta(days=4000))
    assert apply_retention(seconds=30).rows["fires of schedules"] == 1
    assert [fire.pk for fire in fires()] != [old.pk]


def test_a_pause_of_a_kind_holds_what_was_submitted():
    schedule = make_schedule()
    pauses.pause_scope("kind", KIND, actor=ACTOR)
    fire_schedules(at=schedule.next_due_at)
    assert Job.objects.get().held
