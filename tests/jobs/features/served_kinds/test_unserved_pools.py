"""Kinds, and payloads, that the workers of one pool carry out and those of another do not."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.db.models.functions import Now

from jobs.features.pools import assign as upkeep_pools
from jobs.features.pools.assign import follow_pools
from jobs.features.pools.pools import save_pool
from jobs.features.served_kinds import served_kinds as kinds_service
from jobs.features.served_kinds.served_kinds import ServedKinds, kinds_served, refusal_of, take_up
from jobs.features.served_kinds.unserved import tend_unserved
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.handlers.registry import served_names
from jobs.models import DeadLetter, Executor, Job, PauseSwitch
from jobs.services.claim.claim import claim_jobs, claim_suspect
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate.pauses import settle_holds
from jobs.states import JobState
from ratelimits.models import Limit, QuotaAlert
from tests.factories import make_job, make_jobs

pytestmark = pytest.mark.django_db

KIND = "http.request"


class Worker:
    """
    An executor that claims and tends as its pump does.

    Args:
        knows: Whether it has the handler of KIND.
    """

    def __init__(self, pool: str, *, knows: bool, monkeypatch: pytest.MonkeyPatch, version: str = "") -> None:
        self.pool = pool
        self.knows = knows
        self.monkeypatch = monkeypatch
        versions = {KIND: version or kinds_served()[KIND]} if knows else {}
        self.row = Executor.objects.create(
            pid=Executor.objects.count() + 1, process_started_at=0.0, cluster_pid=1, slots=9, role="general", pool=pool,
            kinds=versions,
        )  # fmt: skip
        with monkeypatch.context() as program:
            program.setattr(kinds_service, "kinds_served", lambda: versions)
            self.kinds = ServedKinds(self.row.pk, pool=pool)

    def claims(self) -> set[UUID]:
        with self.monkeypatch.context() as program:
            if not self.knows:
                others = {name: kind for name, kind in served_names().items() if name != KIND}
                program.setattr(kinds_service, "served_names", lambda: others)
            jobs = claim_jobs(
                self.row.pk, wanted=9, lease_seconds=30, turns=ClassTurns(0.1), kinds=self.kinds, pool=self.pool
            )
            jobs += claim_suspect(self.row.pk, lease_seconds=30, kinds=self.kinds, pool=self.pool)
        return {job.id for job in jobs}

    def goes_on(self) -> set[UUID]:
        """A cycle of its pump."""
        self.kinds.tend()
        return self.claims()


class Held:
    """How often jobs were held and put back."""

    def __init__(self, *jobs: Job) -> None:
        self.ids = [job.pk for job in jobs]
        self.seen: list[list[tuple[bool, datetime]]] = []

    def look(self) -> None:
        now = list(Job.objects.filter(pk__in=self.ids).order_by("pk").values_list("held", "updated_at"))
        if not self.seen or self.seen[-1] != now:
            self.seen.append(now)

    @property
    def states(self) -> list[set[bool]]:
        return [{held for held, _ in seen} for seen in self.seen]


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds_service, "KINDS_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(upkeep_pools, "UNDER_WAY_SECONDS", 0.0)
    Limit.objects.all().delete()


@pytest.fixture
def two_pools() -> None:
    for name in ("old", "new"):
        make_job(project=name, state=JobState.COMPLETED)  # the project is there
        save_pool(name, projects=[name], actor="user:1")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("crashes", [0, 2])
def test_a_kind_that_one_of_two_pools_knows_is_held_once_in_the_other_and_runs_in_its_own(
    two_pools, monkeypatch, crashes
):
    kept = [make_job(project="old", crash_count=crashes), make_job(project="old", crash_count=crashes)]
    old, new = (Worker(name, knows=name == "new", monkeypatch=monkeypatch) for name in ("old", "new"))
    held = Held(*kept)
    ran = set()
    for _ in range(6):
        assert old.goes_on() == set()
        held.look()
        own = make_job(project="new", crash_count=crashes)
        assert not own.held
        ran |= new.goes_on()
        assert own.pk in ran
        held.look()
        settle_holds()
        held.look()
    assert held.states == [{False}, {True}], "it was held and put back again and again"
    [switch] = PauseSwitch.objects.all()
    assert (switch.scope, switch.key, switch.pool) == ("unknown", KIND, "old")
    assert make_job(project="old").held, "the next of its pool is held as it comes"
    able = Worker("old", knows=True, monkeypatch=monkeypatch)
    assert able.goes_on() >= {kept[0].pk}
    assert not PauseSwitch.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_a_worker_of_all_jobs_knows_is_held_in_no_pool_and_what_it_does_not_is_left_to_the_pool_that_does(
    two_pools, monkeypatch
):
    jobs = [make_job(project=name) for name in ("old", "new", "acme")]
    everything = Worker("", knows=False, monkeypatch=monkeypatch)
    old, new = (Worker(name, knows=name == "new", monkeypatch=monkeypatch) for name in ("old", "new"))
    held = Held(*jobs)
    held.look()
    assert everything.claims() == set()
    assert everything.goes_on() == old.goes_on() == set()
    assert everything.kinds.strange == {(KIND, "new")}
    assert set(PauseSwitch.objects.values_list("pool", flat=True)) == {"old", ""}
    for _ in range(3):
        held.look()
        assert everything.goes_on() == old.goes_on() == set()
        settle_holds()
    assert [job.held for job in Job.objects.filter(pk__in=held.ids).order_by("created_at")] == [True, False, True]
    assert new.goes_on() == {jobs[1].pk}
    assert len(held.states) == 2
    Job.objects.filter(held=True).update(updated_at=Now())
    able = Worker("", knows=True, monkeypatch=monkeypatch)
    assert able.goes_on() == {jobs[0].pk, jobs[2].pk}
    assert not PauseSwitch.objects.exists()
    for _ in range(3):
        late = make_job(project="old")
        assert everything.goes_on() == old.goes_on() == set()
        assert not PauseSwitch.objects.exists(), "another that serves all jobs carries it out"
        assert able.goes_on() == {late.pk}
    assert old.kinds.strange == {(KIND, "old")}


def test_a_worker_of_all_jobs_that_leaves_a_kind_to_one_pool_notices_it_in_another(two_pools, monkeypatch):
    make_job(project="new")
    everything = Worker("", knows=False, monkeypatch=monkeypatch)
    new = Worker("new", knows=True, monkeypatch=monkeypatch)
    everything.claims()
    everything.goes_on()
    assert everything.kinds.strange == {(KIND, "new")}
    job = make_job(project="old")
    everything.goes_on()
    everything.goes_on()
    job.refresh_from_db()
    assert job.held
    assert len(new.goes_on()) == 1


@pytest.mark.django_db(transaction=True)
def test_jobs_from_before_there_were_pools_are_those_of_none(monkeypatch):
    job = make_job()
    assert job.pool is None
    everything = Worker("", knows=False, monkeypatch=monkeypatch)
    everything.claims()
    everything.goes_on()
    assert PauseSwitch.objects.get().pool == ""
    waiting = explain_waiting(Job.objects.get())
    assert waiting is not None
    assert waiting.text == f"no worker knows kind {KIND}"
    save_pool("llm", kinds=["llm.*"], actor="user:1")
    follow_pools()
    settle_holds()
    assert Job.objects.values_list("pool", "held").get() == ("", True)
    Worker("llm", knows=True, monkeypatch=monkeypatch).goes_on()
    assert Job.objects.get().held, "it serves none of them"
    save_pool("llm", kinds=["llm.*", KIND], actor="user:1")
    follow_pools()
    settle_holds()  # within a minute: what has come to another pool waits for that one's workers
    assert not Job.objects.get().held
    tend_unserved()
    assert not PauseSwitch.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_pool_that_takes_a_payload_puts_back_none_of_another_pool_that_does_not(two_pools, monkeypatch):
    jobs = {name: make_job(project=name, state=JobState.RETRIED) for name in ("old", "new", "acme")}
    said = f"{refusal_of('old')}n is missing"
    Job.objects.filter(status=JobState.RETRIED).update(
        held=True, last_error_code="invalid_payload", last_error_message=said
    )
    PauseSwitch.objects.create(scope="unfit", key=KIND, paused_by="system")
    held = Held(jobs["old"])
    for _ in range(3):
        take_up({KIND: "old"}, pool="old")
        held.look()
        take_up({KIND: "new"}, pool="new")
        held.look()
    assert held.states == [{True}]
    assert not Job.objects.get(pk=jobs["new"].pk).held
    take_up({KIND: "new"}, strange={(KIND, "old")})
    assert Job.objects.get(pk=jobs["old"].pk).held, "it leaves this pool's to others"
    assert not Job.objects.get(pk=jobs["acme"].pk).held
    take_up({KIND: "new"})
    assert not Job.objects.get(pk=jobs["old"].pk).held


def test_what_a_pool_refuses_is_not_left_to_a_later_version_in_another(two_pools, monkeypatch):
    job = make_job(project="old")
    old = Worker("old", knows=True, monkeypatch=monkeypatch, version="old")
    later = Worker("new", knows=True, monkeypatch=monkeypatch, version="new")
    Executor.objects.filter(pk=later.row.pk).update(started_at=Now() + timedelta(seconds=1))
    old.kinds.refuse([job.pk])
    old.kinds.tend()
    assert old.kinds.strange == frozenset()
    Executor.objects.filter(pk=later.row.pk).update(pool="")
    old.kinds.refuse([job.pk])
    old.kinds.tend()
    assert old.kinds.strange == {(KIND, "old")}


def test_each_pool_where_nobody_knows_a_kind_is_an_alert_of_its_own_and_its_jobs_are_buried_alone(
    two_pools, monkeypatch
):
    make_jobs(2, project="old")
    make_jobs(3, project="new")
    for name in ("old", "new"):
        worker = Worker(name, knows=False, monkeypatch=monkeypatch)
        worker.claims()
        worker.goes_on()
    watch_unserved()
    assert set(QuotaAlert.objects.filter(kind="unserved", resolved_at=None).values_list("message", flat=True)) == {
        f"No worker of pool {pool} knows kind {KIND}: {count} jobs of {pool} wait for one; "
        "a dead letter each after 24 h"
        for pool, count in (("old", 2), ("new", 3))
    }
    job = Job.objects.filter(project="old").exclude(status=JobState.COMPLETED)[0]
    waiting = explain_waiting(job)
    assert waiting is not None
    assert [reason.text for reason in waiting.reasons if reason.code == "paused"] == [
        f"no worker of pool old knows kind {KIND}"
    ]
    Job.objects.filter(project="old").update(updated_at=Now() - timedelta(hours=25))
    PauseSwitch.objects.update(created_at=Now() - timedelta(hours=25))
    assert tend_unserved() == 2
    assert set(DeadLetter.objects.values_list("project", flat=True)) == {"old"}
    assert "no worker of pool old that knows" in DeadLetter.objects.all()[0].error_message
    assert PauseSwitch.objects.get().pool == "new"
