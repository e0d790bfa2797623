"""Pools: which jobs belong to one, which cluster claims them, what is told where nobody serves them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from jobs.features.outages import breaker
from jobs.features.pools import assign as upkeep_pools
from jobs.features.pools.assign import follow_pools
from jobs.features.pools.errors import BadPool, PoolInUse
from jobs.features.pools.figures import pool_depths
from jobs.features.pools.pools import delete_pool, ensure_pool, pools_served, save_pool
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.models import Executor, Job, Pool, PoolSweep, ServiceBreaker
from jobs.services.claim.claim import claim_jobs, claim_suspect
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.explain.waiting import explain_waiting
from jobs.services.upkeep.executors import deregister, register
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.core.database import UnsuitableDatabase
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from tests.factories import make_job, make_jobs
from tests.support.cases import every_case
from tests.support.racing import at_once

pytestmark = pytest.mark.django_db

ACTOR = "user:1"


def claimed(pool: str = "", wanted: int = 100) -> list[str]:
    jobs = claim_jobs(uuid4(), wanted=wanted, lease_seconds=30, turns=ClassTurns(0.1), pool=pool)
    return sorted(job.kind for job in jobs)


def limit(service: str) -> None:
    Limit.objects.create(name=f"all-{service}", service=service, call_type="any", scope="project", capacity=100)
    catalogue.forget()


@pytest.fixture(autouse=True)
def no_limits() -> Iterator[None]:
    Limit.objects.all().delete()
    catalogue.forget()
    yield
    catalogue.forget()


def executor(pool: str = "", **fields: object) -> Executor:
    given = {"pid": 1, "process_started_at": 0.0, "cluster_pid": 1, "slots": 9, "role": "general", "pool": pool}
    return Executor.objects.create(**(given | fields))


def pool_of(job: Job) -> str | None:
    job.refresh_from_db()
    return job.pool


@pytest.fixture
def settles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_pools, "UNDER_WAY_SECONDS", 0.0)


def test_a_job_belongs_to_the_first_pool_that_names_it_in_each_of_its_lists():
    assert make_job(kind="llm.generate").pool is None
    save_pool("slow", kinds=["sheets.*", "http.request"], place=50, actor=ACTOR)
    save_pool("acme-http", services=["http"], projects=["acme"], place=40, actor=ACTOR)
    save_pool("rest", kinds=["*"], place=900, actor=ACTOR)
    assert make_job(kind="sheets.read", service="sheets").pool == "slow"
    assert make_job(kind="sheetsxread", service="sheets").pool == "rest"
    assert make_job(kind="http.request").pool == "acme-http"
    assert make_job(kind="http.request", project="other").pool == "slow"


def test_a_pools_cluster_claims_its_jobs_and_one_without_a_pool_claims_all():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    make_jobs(3, kind="slow.read")
    make_jobs(2, kind="quick.read")
    assert claimed("slow", wanted=2) == ["slow.read"] * 2
    assert claimed() == ["quick.read"] * 2 + ["slow.read"]
    assert claimed("slow") == []


def test_a_pools_gate_opens_lanes_that_hold_its_jobs_and_takes_no_others_from_them():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    limit("http")
    limit("other")
    make_jobs(3, kind="quick.read")
    make_jobs(2, kind="slow.read")
    make_jobs(2, kind="quick.read", service="other")
    gate = LaneGate("slow")
    with transaction.atomic():
        assert len(gate.look(wanted=9).names) == 1
    assert claimed("slow") == ["slow.read"] * 2
    assert claimed("slow") == []
    assert claimed() == ["quick.read"] * 5


def test_a_suspect_is_run_by_the_quarantine_of_its_pool():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    make_job(kind="quick.read", crash_count=2)
    suspect = make_job(kind="slow.read", crash_count=2)
    assert [job.id for job in claim_suspect(uuid4(), lease_seconds=30, pool="slow")] == [suspect.id]
    assert claim_suspect(uuid4(), lease_seconds=30, pool="slow") == []


@pytest.mark.django_db(transaction=True)
def test_two_pools_that_claim_at_once_take_disjoint_jobs_and_all_of_them():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    save_pool("quick", kinds=["quick.*"], actor=ACTOR)
    for _ in range(60):
        make_jobs(5, kind="slow.read")
        make_jobs(5, kind="quick.read")
    taken: dict[str, list[str]] = {"slow": [], "quick": []}
    lock = threading.Lock()

    def drain(pool: str) -> None:
        while found := claimed(pool, wanted=7):
            with lock:
                taken[pool] += found

    at_once(*[lambda pool=pool: drain(pool) for pool in ("slow", "quick") * 3])
    assert taken == {"slow": ["slow.read"] * 300, "quick": ["quick.read"] * 300}


@pytest.mark.django_db(transaction=True)
def test_waiting_jobs_follow_the_rules_part_by_part(monkeypatch, settles_at_once):
    monkeypatch.setattr(upkeep_pools, "LOOKED_AT_ONCE", 3)
    monkeypatch.setattr(upkeep_pools, "SWEEP_SECONDS", 60.0)  # or a busy machine would leave parts to the next call
    ready, scheduled = make_jobs(8, kind="slow.read"), make_job(kind="slow.read", delay_seconds=600)
    held, ended = make_job(kind="slow.read", held=True), make_job(kind="slow.read", state=JobState.COMPLETED)
    running = make_job(kind="slow.read", state=JobState.IN_PROGRESS)
    assert follow_pools() == 0  # nothing has changed yet
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    assert claimed("slow") == []
    assert follow_pools() == 11
    assert {pool_of(job) for job in [*ready, scheduled, held, running]} == {"slow"}
    assert pool_of(ended) is None
    quick = make_job(kind="quick.read")
    save_pool("slow", kinds=["other"], actor=ACTOR)
    assert follow_pools() == 11
    assert pool_of(ready[0]) == ""
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    save_pool("later", kinds=["slow.read"], place=900, actor=ACTOR)
    follow_pools()
    delete_pool("slow", actor=ACTOR)
    follow_pools()
    assert pool_of(ready[0]) == "later"
    assert pool_of(quick) == ""
    delete_pool("later", actor=ACTOR)
    follow_pools()
    assert pool_of(ready[0]) is pool_of(quick) is None


@pytest.mark.django_db(transaction=True)
def test_jobs_that_an_open_transaction_inserted_by_the_old_rules_follow_when_it_ends(settles_at_once):
    inserted, go_on = threading.Event(), threading.Event()
    jobs: list[Job] = []

    def insert_slowly() -> None:
        with transaction.atomic():
            jobs.append(make_job(kind="slow.read"))
            inserted.set()
            assert go_on.wait(20)
        connection.close()

    make_job(state=JobState.COMPLETED)  # the project is there
    thread = threading.Thread(target=insert_slowly)
    thread.start()
    assert inserted.wait(20)
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    assert follow_pools() == 0
    assert PoolSweep.objects.get().passes == 1
    go_on.set()
    thread.join()
    assert follow_pools() == 1
    assert PoolSweep.objects.get().passes == 2
    assert pool_of(jobs[0]) == "slow"


@every_case(
    ("given", "said"),
    [
        ({"name": "LLM", "kinds": ["x"]}, "small letters"),
        ({"name": "", "kinds": ["x"]}, "name"),
        ({"name": "x" * 41, "kinds": ["x"]}, "40"),
        ({"name": "llm"}, "Name a service, a kind or a project"),
        ({"name": "llm", "services": ["a b"]}, "a b is no name"),
        ({"name": "llm", "kinds": ["a*b"]}, "is no name"),
        ({"name": "llm", "projects": ["nobody"]}, "There is no project nobody"),
        ({"name": "llm", "kinds": ["x"], "place": -1}, "place"),
        ({"name": "llm", "kinds": ["x"], "place": 40_000}, "place"),
        ({"name": "llm", "kinds": ["x"] * 101}, "kinds"),
    ],
    undone=True,
)
def test_wrong_rules_are_refused_and_nothing_is_changed(given, said):
    with pytest.raises(BadPool, match=said):
        save_pool(given.pop("name"), **given, actor=ACTOR)
    assert not Pool.objects.exists()
    assert not PoolSweep.objects.exists()


def test_each_change_is_audited():
    save_pool("llm", services=["gemini"], actor=ACTOR)
    save_pool("llm", services=["gemini", "openai"], actor=ACTOR)
    delete_pool("llm", actor=ACTOR)
    entries = list(AuditEntry.objects.order_by("pk").values_list("action", "actor", "target"))
    assert entries == [(f"{verb}_pool", ACTOR, "pool llm") for verb in ("add", "change", "delete")]
    before = AuditEntry.objects.get(action="change_pool").before
    assert before is not None
    assert before["services"] == ["gemini"]


def test_a_pool_that_a_live_cluster_serves_is_not_deleted():
    save_pool("llm", services=["gemini"], actor=ACTOR)
    register(one := uuid4(), cluster_pid=1, slots=9, pool="llm")
    with pytest.raises(PoolInUse, match="1 live executor serves pool llm"):
        delete_pool("llm", actor=ACTOR)
    deregister(one)
    delete_pool("llm", actor=ACTOR)


def test_an_unknown_pool_is_told_with_its_setting_and_those_that_there_are():
    ensure_pool("")
    with pytest.raises(UnsuitableDatabase, match=r"QUEUEOPS_POOL .* 'llm' is none. There are: none yet"):
        ensure_pool("llm")
    save_pool("slow", kinds=["x"], actor=ACTOR)
    with pytest.raises(UnsuitableDatabase, match="There are: slow"):
        ensure_pool("llm")
    ensure_pool("slow")


def test_who_serves_what():
    assert pools_served() is None
    executor("slow")
    executor("quick", draining=True)
    executor("gone", heartbeat_at=Now() - timedelta(hours=1))
    assert pools_served() == frozenset({"slow"})
    executor()
    assert pools_served() is None


def alerts() -> set[str]:
    watch_unserved()
    return set(QuotaAlert.objects.filter(kind="unserved", resolved_at=None).values_list("message", flat=True))


def test_a_pool_with_waiting_jobs_and_no_live_cluster_is_an_alert_until_one_serves_it():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    save_pool("idle", kinds=["idle.*"], actor=ACTOR)
    limit("limited")
    make_jobs(3, kind="slow.read")
    make_jobs(2, kind="slow.read", service="limited")
    executor("idle")
    assert alerts() == {"Pool slow: 5 jobs of acme wait, and no live cluster serves it"}
    one = executor("slow")
    assert alerts() == set()
    one.delete()
    assert alerts() == set()  # it may be restarting
    Pool.objects.update(served_at=Now() - timedelta(hours=1))
    assert len(alerts()) == 1
    executor()
    assert alerts() == set()


@pytest.mark.django_db(transaction=True)
def test_a_kind_that_no_pool_names_is_an_alert_where_every_cluster_serves_a_pool():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    limit("limited")
    make_job(kind="slow.read")
    make_job(kind="quick.read")
    make_job(kind="other.read", service="limited")
    executor("slow")
    assert alerts() == {
        f"No pool names kind {kind}, and every live cluster serves a pool: 1 job waits"
        for kind in ("quick.read", "other.read")
    }
    everything = executor()
    assert alerts() == set()
    everything.delete()
    save_pool("rest", kinds=["*"], place=900, actor=ACTOR)
    executor("rest")
    follow_pools()
    assert alerts() == set()


def test_a_job_says_that_it_waits_for_a_worker_of_its_pool():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    slow, quick = make_job(kind="slow.read"), make_job(kind="quick.read")

    def reason(job: Job) -> tuple[str, str]:
        waiting = explain_waiting(job)
        assert waiting is not None
        return waiting.reasons[-1].code, waiting.reasons[-1].text

    assert reason(slow) == ("pool", "it waits for a worker of pool slow, and none is running")
    assert reason(quick) == ("slots", "no worker is running")
    executor("other")
    assert reason(quick) == ("pool", "no pool names it, and the workers that run serve pools only")
    executor("slow", in_flight=9)
    assert reason(slow) == ("slots", "all 9 slots of the workers of pool slow are busy")


@pytest.mark.django_db(transaction=True)
def test_no_probe_is_a_job_of_a_pool_that_nobody_serves():
    save_pool("slow", kinds=["slow.*"], actor=ACTOR)
    save_pool("quick", kinds=["quick.*"], actor=ACTOR)
    make_jobs(5, kind="slow.read")
    make_job(kind="quick.read")
    out = {"failures": 10, "opened_at": Now(), "next_probe_at": Now(), "updated_at": Now()}
    ServiceBreaker.objects.create(service="http", target=Job.objects.all()[0].target, project_id="acme", **out)
    executor("quick")
    breaker.tend_breakers()
    probe = ServiceBreaker.objects.get().probe_job_id
    assert probe is not None
    assert Job.objects.get(pk=probe).kind == "quick.read"
    assert claimed("slow") == []
    assert claimed("quick") == ["quick.read"]


def test_depths_are_those_of_each_pool():
    save_pool("slow", kinds=["slow.*"], place=1, actor=ACTOR)
    save_pool("idle", kinds=["idle.*"], actor=ACTOR)
    limit("limited")
    make_jobs(3, kind="slow.read")
    make_jobs(2, kind="slow.read", service="limited")
    make_jobs(4, kind="slow.read", service="limited", state=JobState.RATE_LIMITED)
    make_jobs(5, kind="slow.read", state=JobState.IN_PROGRESS)
    make_job(kind="quick.read")
    executor("slow")
    slow, idle, none = pool_depths()
    assert (none.name, none.ready, none.executors, none.is_served) == ("", 1, 0, False)
    assert (slow.ready, slow.parked, slow.running, slow.executors, slow.clusters) == (5, 4, 5, 1, 1)
    assert (
        slow.since
        == Job.objects.filter(status__in=["queued", "rate_limited"]).earliest("eligible_since").eligible_since
    )
    assert (idle.ready, idle.parked, idle.running, idle.is_served, idle.since) == (0, 0, 0, False, None)


def test_a_pool_is_set_and_deleted_by_command(capsys):
    call_command("set_pool", "llm", services="gemini, opnai, http*, google-sheets", place=10)
    told = capsys.readouterr().err
    assert [service for service in ("gemini", "opnai", "http*", "google-sheets") if service in told] == [
        "gemini",
        "opnai",
    ]
    call_command("set_pool", "llm", services="gemini, openai", place=10)
    assert (Pool.objects.get().services, Pool.objects.get().place) == (["gemini", "openai"], 10)
    assert "qcluster --pool llm" in capsys.readouterr().out
    with pytest.raises(CommandError, match="Name a service"):
        call_command("set_pool", "llm")
    with pytest.raises(CommandError, match="takes no lists"):
        call_command("set_pool", "llm", delete=True, kinds="x")
    call_command("set_pool", "llm", delete=True)
    with pytest.raises(CommandError, match="There is no pool 'llm'"):
        call_command("set_pool", "llm", delete=True)
