"""Without a worker the web processes tell that nobody works: once, however many of them there are."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from aiohttp import web
from django.test import Client
from django.utils import timezone

from jobs.features.watches.notify_alerts import KIND, send_unsent
from jobs.features.watches.watch import tend_alerts
from jobs.models import Executor, Job, PauseSwitch
from jobs.services.upkeep import nobody
from jobs.services.upkeep.nobody import NobodyWatch, deliver_waiting
from queueops.core.clock import Now
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_executors
from queueops.site.workers_watch import WorkersWatch
from queueops.tenancy.models import Project, ProjectMove
from ratelimits.alerts.alerts import open_alert
from ratelimits.models import QuotaAlert
from tests.factories import make_jobs, make_route
from tests.support.background import in_background
from tests.support.http_server import serving
from tests.support.racing import run_together

pytestmark = pytest.mark.django_db


class Hand:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def executor(*, silent_for: float = 0.0) -> Executor:
    row = Executor.objects.create(pid=1, process_started_at=0.0, cluster_pid=1, slots=9, role="general")
    Executor.objects.update(heartbeat_at=Now() - timedelta(seconds=silent_for))
    return row


def open_ones() -> list[str]:
    return list(QuotaAlert.objects.filter(kind="no_executor", resolved_at=None).values_list("message", flat=True))


def test_it_is_told_after_two_minutes_by_two_web_processes_once_and_ends_with_a_worker(monkeypatch):
    monkeypatch.setattr(nobody, "deliver_waiting", lambda: 0)
    make_route()
    make_jobs(3)
    hand = Hand()
    watches = [NobodyWatch(hand), NobodyWatch(hand)]
    for seconds in (0, 119):
        hand.now = 1000.0 + seconds
        for one in watches:
            one.look()
    assert open_ones() == []
    hand.now += 2
    for one in watches * 2:
        one.look()
    message = "For 2 minutes no executor lives, and 3 jobs wait: start workers (manage.py up, or qcluster)"
    assert open_ones() == [message]
    assert QuotaAlert.objects.get().severity == "critical"
    assert Job.objects.filter(kind=KIND).count() == 1
    ready = Client().get("/readyz")
    assert (ready.status_code, ready.json()["warnings"]) == (200, ["no executor lives, and 3 jobs wait"])
    assert examine_executors().verdict == DoctorVerdict.FAIL
    executor()
    watches[0].look()
    assert open_ones() == []
    assert "warnings" not in Client().get("/readyz").json()


def test_one_that_fell_silent_counts_from_its_last_sign_and_a_workers_watch_ends_the_alert():
    make_jobs(1)
    executor(silent_for=119)
    NobodyWatch(Hand()).look()
    assert open_ones() == []
    executor(silent_for=121)
    NobodyWatch(Hand()).look()
    assert len(open_ones()) == 1
    tend_alerts()
    assert open_ones() == []


@pytest.mark.parametrize("of", ["nothing waits", "all is delayed", "everything is paused", "its project moved away"])
def test_nobody_is_told_where_nothing_could_go_on(of):
    if of != "nothing waits":
        make_jobs(
            2, project="acme", scheduled_at=timezone.now() + timedelta(hours=1) if of == "all is delayed" else None
        )
    if of == "everything is paused":
        PauseSwitch.objects.create(scope="global", key="", paused_by="user:1")
    if of == "its project moved away":
        Project.objects.update(move=ProjectMove.MOVED)
    executor(silent_for=9999)
    NobodyWatch(Hand()).look()
    assert open_ones() == []


@pytest.mark.django_db(transaction=True)
def test_the_web_process_sends_what_no_worker_can_once_and_tries_again_what_was_not_accepted():
    received: list[str] = []
    answers = [503]

    async def keep(request: web.Request) -> web.Response:
        received.append(request.headers["webhook-id"])
        return web.Response(status=answers.pop() if answers else 204)

    with in_background(serving(keep)) as url:
        make_route(target=f"{url}/alerts")
        make_jobs(1)
        executor(silent_for=9999)
        watch = NobodyWatch(Hand())
        watch.look()
        assert len(received) == 1
        watch.look()
        assert len(received) == 1, "it waits before it is tried again"
        Job.objects.filter(kind=KIND).update(scheduled_at=None)
        open_alert("horizon", "other", severity="warning", message="other", figures={})
        send_unsent(10)

        def deliver(_: int) -> int:
            return deliver_waiting()

        assert sum(run_together(3, deliver)) == 2
        watch.look()
    assert len(received) == 3
    assert len(set(received)) == 2
    assert set(Job.objects.filter(kind=KIND).values_list("status", flat=True)) == {"cancelled"}


def test_a_look_that_fails_ends_no_other():
    looked = threading.Event()

    class Failing(NobodyWatch):
        looks = 0

        def look(self) -> None:
            self.looks += 1
            if self.looks == 1:
                raise LookupError("no such thing")
            looked.set()

    watch = WorkersWatch(Failing(), every_seconds=0.001)
    watch.start()
    assert looked.wait(10)
    watch.stop()
