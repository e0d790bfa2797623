"""A collector that takes nothing: told of by the alert, the front page and the metric, from a real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from dashboards.metrics.samples import Value, read_samples
from jobs import cluster
from jobs.features.watches.watch import tend_alerts
from jobs.services.upkeep.health import Situation, findings
from jobs.states import JobState
from queueops.audit import stream, trail
from queueops.audit.models import AuditEntry, AuditStream
from ratelimits.models import QuotaAlert
from tests.support.plans import explain_reads, nodes, rows_read
from tests.support.syslog_receiver import Collector

pytestmark = pytest.mark.django_db(transaction=True)  # what is sent waits for whoever began before it, the test too

QUARTER = timedelta(minutes=15)


@pytest.fixture
def collector(tmp_path: Path, settings: Any) -> Iterator[Collector]:
    made = Collector(tmp_path / "received")
    made.start()
    settings.QUEUEOPS = replace(settings.QUEUEOPS, audit_stream=f"syslog+tcp://127.0.0.1:{made.port}")
    yield made
    made.kill()


def write(*, ago: timedelta = timedelta()) -> None:
    entry = AuditEntry(actor="user:1", action="try", target="x", created_at=timezone.now() - ago)
    entry.save(force_insert=True)


def told() -> list[QuotaAlert]:
    tend_alerts()
    return list(QuotaAlert.objects.filter(kind="audit_stream", resolved_at=None))


def lag() -> list[float]:
    return [one.value for one in read_samples() if isinstance(one, Value) and one.metric == "audit_stream_lag_seconds"]


def test_it_is_told_when_nothing_was_taken_for_long_and_cleared_when_something_is(collector: Collector) -> None:
    write()
    cluster.stream_audit()
    AuditStream.objects.update(accepted_at=timezone.now() - 2 * QUARTER)
    assert (told(), lag()) == ([], [0.0])  # nothing waits
    collector.kill()
    write(ago=QUARTER / 3)
    cluster.stream_audit()
    assert told() == []  # not for long
    write(ago=2 * QUARTER)
    AuditStream.objects.update(cursor=AuditEntry.objects.order_by("-pk")[1].pk)
    cluster.stream_audit()
    [alert] = told()
    assert f"127.0.0.1:{collector.port} has taken nothing of the audit trail for 30 min: Connection" in alert.message
    assert alert.severity == "warning"
    assert lag()[0] >= 2 * QUARTER.total_seconds()
    situation = Situation(counts=dict.fromkeys(JobState, 0), executors=["alive"], alerts=[alert])
    assert alert.message in findings(situation)[0].text
    collector.start()
    cluster.stream_audit()
    assert (told(), lag()) == ([], [0.0])
    alert.refresh_from_db()
    assert alert.resolved_at is not None


@pytest.mark.django_db
def test_one_that_takes_a_long_trail_bit_by_bit_is_no_alert(settings: Any) -> None:
    """A target that was named just now, or works off what waited."""
    settings.QUEUEOPS = replace(settings.QUEUEOPS, audit_stream="syslog+tcp://127.0.0.1:1")
    write(ago=100 * QUARTER)
    named = AuditStream.objects.create(target="syslog+tcp://127.0.0.1:1")
    assert told() == []
    named.accepted_at -= 2 * QUARTER
    named.save()
    assert len(told()) == 1


def test_a_target_that_is_no_longer_set_is_no_alert(collector: Collector, settings: Any) -> None:
    collector.kill()
    write(ago=2 * QUARTER)
    cluster.stream_audit()
    AuditStream.objects.update(accepted_at=timezone.now() - 2 * QUARTER)
    assert len(told()) == 1
    settings.QUEUEOPS = replace(settings.QUEUEOPS, audit_stream="")
    assert (told(), lag()) == ([], [])


@pytest.mark.django_db
def test_what_waits_is_not_counted() -> None:
    AuditStream.objects.create(target="file:///x")
    for _ in range(50):
        trail.record(actor="user:1", action="try", target="x")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # of so few rows it would be as cheap
    for plan in explain_reads(lambda: stream.standstill("file:///x")):
        assert all(rows_read(node) <= 2 for node in nodes(plan))
