"""/metrics, /healthz and /readyz."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client, override_settings
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from dashboards.metrics.catalogue import METRICS
from dashboards.services.shared.cache import forget_all
from jobs.models import SINCE_EVER, FlowSample, ServiceBreaker
from jobs.services.upkeep.executors import register
from jobs.states import JobState
from queueops.core.web.leaving import LEAVING
from queueops.tenancy.models import ProducerKey
from ratelimits.models import Limit, QuotaAlert, UsageTracking
from tests.factories import (
    make_allowance,
    make_dead_letter,
    make_jobs,
    make_project,
    make_reservation,
    make_usage_event,
)
from tests.support.flow import count_all

pytestmark = pytest.mark.django_db

TOKEN = "a-token-for-scrapers"


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget_all()


def scrape(**headers: str) -> dict[tuple[str, ...], float]:
    """Samples by name and sorted labels."""
    response = Client().get("/metrics", headers=headers)
    assert response.status_code == 200, response.content
    found = {}
    for family in text_string_to_metric_families(response.content.decode()):
        for sample in family.samples:
            key = (sample.name, *sorted(f"{name}={value}" for name, value in sample.labels.items()))
            assert key not in found, f"{key} is exported twice"
            found[key] = sample.value
    return found


def with_token(token: str = TOKEN) -> override_settings:
    return override_settings(QUEUEOPS=replace(settings.QUEUEOPS, metrics_token=token))


@pytest.mark.django_db(transaction=True)  # the log is counted up to the oldest transaction
def test_the_page_counts_what_the_log_says():
    count_all()
    make_jobs(3, state=JobState.COMPLETED)
    make_jobs(2, priority="urgent")
    make_jobs(1, priority="low", delay_seconds=3600)
    make_dead_letter()
    count_all()
    found = scrape()
    assert found["queueops_jobs_submitted_total", "service=http"] == 7
    assert found["queueops_jobs_ended_total", "outcome=completed", "service=http"] == 3
    assert (found["queueops_jobs", "state=queued"], found[("queueops_jobs_scheduled",)]) == (3, 1)
    assert found["queueops_jobs_waiting", "priority=low", "service=http", "state=scheduled"] == 1
    assert found["queueops_jobs_waiting", "priority=urgent", "service=http", "state=queued"] == 2
    assert found[("queueops_dead_letters_open",)] == 1
    assert found["queueops_handler_seconds_count", "service=http"] == 0


def test_the_page_sums_up_allowances_by_project_and_knows_no_user():
    make_allowance(quota=10)
    make_allowance("idle")
    one, other = uuid4(), uuid4()
    make_usage_event(one, amount=12)
    make_reservation(other, amount=4)
    make_usage_event(one, amount=9, month_year="2026-01")
    UsageTracking.objects.filter(user_id=other).update(refused=3, expired=2)
    found = scrape()
    users = {
        level: found["queueops_allowance_users", f"level={level}", "project=acme"] for level in (0, 60, 80, 100, 101)
    }
    assert users == {0: 1, 60: 0, 80: 0, 100: 0, 101: 1}
    figures = ("used_ratio", "reserved", "overage", "refusals", "expired")
    assert [found[f"queueops_allowance_{figure}", "project=acme"] for figure in figures] == [0.6, 4, 2, 3, 2]
    assert [found[f"queueops_allowance_{figure}", "project=idle"] for figure in figures] == [0, 0, 0, 0, 0]
    assert not [key for key in found if str(one) in str(key)]


def test_a_cap_that_was_passed_is_counted_until_its_alert_is_resolved():
    limit = Limit.objects.create(name="writes", service="sheets", capacity=1, window_seconds=60)
    for subject, resolved_at in (("a", timezone.now()), ("b", None)):
        QuotaAlert.objects.create(
            kind="exceeded", severity="warning", limit=limit, subject=subject, message="x", resolved_at=resolved_at
        )
    assert scrape()["queueops_quota_exceeded", "limit=writes", "service=sheets"] == 1
    QuotaAlert.objects.update(resolved_at=timezone.now())
    forget_all()
    assert "queueops_quota_exceeded" not in {key[0] for key in scrape()}


def test_outages_of_services_that_are_not_counted_by_name_are_one_series():
    FlowSample.objects.create(span_seconds=SINCE_EVER, at=timezone.now(), service="known")
    for service in ("known", "http:dead-1", "http:dead-2"):
        ServiceBreaker.objects.create(service=service, project_id="acme", opened_at=timezone.now(), holds=3)
    held = {key: value for key, value in scrape().items() if key[0] == "queueops_jobs_held_by_outage"}
    assert held == {
        ("queueops_jobs_held_by_outage", "service=known"): 3,
        ("queueops_jobs_held_by_outage", "service=other"): 6,
    }


def test_every_metric_of_the_catalogue_is_on_the_page_with_its_kind():
    page = Client().get("/metrics").content.decode()
    kinds = {family.name: family.type for family in text_string_to_metric_families(page)}
    assert kinds == {f"queueops_{name}": metric.kind for name, metric in METRICS.items()}


def test_without_a_token_only_this_machine_reads_the_metrics():
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="10.1.2.3").get("/metrics").status_code == 401
    assert Client(REMOTE_ADDR="").get("/metrics").status_code == 401
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics", headers={"X-Forwarded-For": "1.2.3.4"}).status_code == 401


def test_with_a_token_whoever_shows_it_reads_the_metrics_and_nobody_else():
    with with_token():
        assert scrape(Authorization=f"Bearer {TOKEN}")
        for shown in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \N{SNOWMAN}"):
            response = Client().get("/metrics", headers={"Authorization": shown})
            assert response.status_code == 401, shown
            assert TOKEN not in response.content.decode()


def test_probes_and_scrapers_may_call_by_any_name_and_get_no_session():
    client = Client(HTTP_HOST="10.0.0.7:8000")
    for path in ("/healthz", "/readyz", "/metrics"):
        response = client.get(path)
        assert response.status_code == 200, path
        assert not response.cookies
        assert client.post(path).status_code == 405


def test_production_redirects_no_probe_to_tls():
    with override_settings(SECURE_SSL_REDIRECT=True):
        assert Client().get("/healthz").status_code == 200
        assert Client().get("/readyz").status_code == 200


@pytest.mark.django_db(transaction=True)  # in a transaction the connection would not be opened anew
def test_a_process_lives_without_a_database_and_is_not_ready():
    with mock.patch.dict(connection.settings_dict, {"PORT": "1", "HOST": "127.0.0.1", "PASSWORD": "hunter2hunter2"}):
        connection.close()
        alive, ready = Client().get("/healthz"), Client().get("/readyz")
        metrics = Client().get("/metrics")
    connection.close()
    assert alive.status_code == 200
    assert ready.status_code == metrics.status_code == 503
    assert ready.json() == {"status": "not_ready", "reasons": ["the database does not answer"], "executors": None}
    assert b"127.0.0.1" not in metrics.content


def test_a_process_is_not_ready_before_its_migrations_are_applied():
    newest = MigrationRecorder.Migration.objects.filter(app="sessions").latest("name")
    newest.delete()
    try:
        ready = Client().get("/readyz")
    finally:
        newest.save()
    assert (ready.status_code, ready.json()["reasons"]) == (503, ["migrations are not applied"])
    assert Client().get("/readyz").status_code == 200


def test_a_process_is_ready_without_executors_and_says_how_many_there_are():
    assert Client().get("/readyz").json() == {"status": "ready", "reasons": [], "executors": 0}
    register(make_jobs(1)[0].pk, cluster_pid=1, slots=5)
    assert Client().get("/readyz").json()["executors"] == 1


@pytest.mark.proves("S11")
def test_no_key_user_or_payload_is_among_the_metrics():
    _, key = ProducerKey.issue(make_project(), name="loader")
    make_jobs(1, payload='{"method": "GET", "url": "http://u:hunter2hunter2@127.0.0.1/?token=hunter2hunter2"}')
    with with_token():
        page = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).content.decode()
    for secret in (key, key[:11], TOKEN, "hunter2", settings.SECRET_KEY, "loader"):
        assert secret not in page


def test_a_process_that_is_about_to_stop_is_alive_and_not_ready():
    LEAVING.set()
    try:
        assert Client().get("/healthz").status_code == 200
        ready = Client().get("/readyz")
    finally:
        LEAVING.clear()
    assert (ready.status_code, ready.json()["reasons"]) == (503, ["it is about to stop"])
