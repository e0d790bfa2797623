"""A project that moved away is one of the things that hold work: where it left, nobody is told of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from django.db import connection
from django.utils import timezone

from dashboards.metrics.samples import read_samples
from dashboards.services.ops import ops_snapshot
from dashboards.services.shared.cache import forget_all
from jobs.features.watches.watch import tend_alerts
from jobs.lanes import lane_name
from jobs.models import DeadLetter, Job, PauseSwitch, Schedule, ServiceBreaker, Webhook
from jobs.services.claim.ready import oldest_ready
from jobs.states import JobState
from queueops.core.clock import Now
from queueops.tenancy.models import Project, ProjectMove
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from ratelimits.subjects import Subject
from tests.factories import make_dead_letters, make_jobs, make_schedule
from tests.support.processes import ROOT

pytestmark = pytest.mark.django_db

WRITES = Subject("google-sheets", "write", "acme", "u1")
LANE = lane_name(WRITES, project="acme", user="u1")


@pytest.fixture(autouse=True)
def fresh() -> None:
    Limit.objects.all().delete()
    catalogue.forget()
    forget_all()


def leave_everything(project: str = "acme") -> None:
    """What alarms, and what a project leaves where it moved away from."""
    long_ago = timezone.now() - timedelta(hours=3)
    make_jobs(3, project=project, eligible_since=long_ago)
    make_dead_letters(2, project=project)
    ServiceBreaker.objects.create(project_id=project, service="svc", opened_at=long_ago, next_probe_at=long_ago)
    Limit.objects.create(name="sheets", service="google-sheets", call_type="write", scope="global", capacity=60)
    catalogue.forget()
    decide([Call(WRITES)] * 60)
    make_jobs(400, project=project, state=JobState.RATE_LIMITED, service="google-sheets", lane=LANE)
    schedule = make_schedule(project=project)
    Schedule.objects.filter(pk=schedule.pk).update(refused_in_a_row=9, next_due_at=Now())
    Webhook.objects.create(project_id=project, url="https://example.org/", paused_at=Now(), paused_because="silent")
    make_jobs(1, project=project, state=JobState.IN_PROGRESS)
    Job.objects.filter(status=JobState.IN_PROGRESS).update(started_at=long_ago)


def wanted_by_keda() -> int:
    documents = yaml.safe_load_all(Path(ROOT, "deploy/kubernetes/scaling.yaml").read_text(encoding="utf-8"))
    [scaled] = [one for one in documents if one["kind"] == "ScaledObject"]
    with connection.cursor() as cursor:
        cursor.execute(scaled["spec"]["triggers"][0]["metadata"]["query"])
        return int(cursor.fetchone()[0])


def told() -> set[str]:
    tend_alerts()
    return set(QuotaAlert.objects.filter(resolved_at=None).values_list("kind", flat=True))


def sample(name: str) -> float:
    forget_all()
    [found] = [one for one in read_samples() if one.metric == name]
    return float(getattr(found, "value", 0.0))


@pytest.mark.parametrize("move", [ProjectMove.MOVED, ProjectMove.MOVING])
def test_what_a_project_left_behind_alarms_nobody_and_calls_for_no_worker(move: str):
    leave_everything()
    before = told()
    assert {"oldest_ready", "dead_letters", "outage", "saturated", "schedule", "receiver", "long_running"} <= before
    assert (wanted_by_keda(), sample("oldest_ready_seconds") > 0, len(oldest_ready(["acme"]))) == (3, True, 1)
    Project.objects.update(move=move)
    assert told() == set()
    assert (wanted_by_keda(), sample("oldest_ready_seconds"), oldest_ready(["acme"])) == (0, 0.0, {})
    snapshot = ops_snapshot()
    [oldest] = [one for one in snapshot["tiles"] if one["id"] == "oldest_ready"]
    assert oldest["since"] is None
    assert not any("does not answer" in one["text"] for one in [snapshot["health"], *snapshot["health"]["also"]])
    assert [row["waiting"] for row in snapshot["limits"]] == [0]
    make_dead_letters(1, project="globex")
    assert told() == {"dead_letters"}
    assert QuotaAlert.objects.get(resolved_at=None).projects == {"globex"}
    assert DeadLetter.objects.filter(project="acme").count() == 2


def test_a_pause_holds_ready_work_everywhere_too():
    leave_everything()
    PauseSwitch.objects.create(scope="project", key="acme", paused_by="user:1")
    assert "oldest_ready" not in told()
    assert (wanted_by_keda(), oldest_ready(["acme"])) == (0, {})
    PauseSwitch.objects.update(scope="global", key="")
    assert "oldest_ready" not in told()
    assert (wanted_by_keda(), oldest_ready(["acme"])) == (0, {})
