"""The demo: real requests built from Python's time zones, seen from the provider's side."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from urllib.parse import urlsplit
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from demo import language_model, sheets, usage, zones
from demo.management.commands.seed_demo import Command as SeedDemo
from jobs.door.models import Protocol
from jobs.door.routes import route_for, routes_of, save_route
from jobs.models import Batch, Job
from jobs.services.explain.batch_report import duration_text, read_report
from jobs.states import JobState
from jobs.testing import drain
from queueops.core.env.environment import Environment
from queueops.tenancy.models import Credential, ProducerKey
from queueops.tenancy.secrets.credentials import find_principals
from ratelimits.limits import catalogue
from ratelimits.models import Allowance, Limit, UsageTracking
from ratelimits.usage.ledger import check_ledger
from tests.factories import make_batch, make_dead_letters, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.sandbox import Sandbox

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
ASKED = {"gpt-any": Protocol.OPENAI, "claude-any": Protocol.ANTHROPIC}


@pytest.mark.django_db
def test_the_demo_says_that_tables_are_missing_instead_of_breaking_on_one():
    allowed = replace(settings.QUEUEOPS, allow_loopback_targets=True)
    MigrationRecorder.Migration.objects.filter(app="jobs").delete()
    with override_settings(QUEUEOPS=allowed), pytest.raises(CommandError, match=r"run manage\.py migrate first"):
        call_command("seed_demo")
    assert not Batch.objects.exists()


def test_every_zone_of_the_machine_gets_one_request():
    names = zones.zone_names()
    assert len(names) > 400
    lines = list(zones.job_lines("http://127.0.0.1:1", names, at=NOON))
    assert len({line["payload"]["url"] for line in lines}) == len(names)


def test_the_next_transition_is_exact():
    assert zones.next_transition(ZoneInfo("Europe/Berlin"), after=NOON) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert zones.next_transition(ZoneInfo("Etc/UTC"), after=NOON) is None
    before = datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC)
    assert zones.next_transition(ZoneInfo("Europe/Berlin"), after=before) == before + timedelta(seconds=1)


def test_the_facts_of_a_zone():
    assert zones.facts_of("Asia/Kathmandu", at=NOON).row() == {
        "zone": "Asia/Kathmandu",
        "abbreviation": "+0545",
        "utc_offset": "+05:45",
        "next_transition": None,
        "utc_offset_then": None,
    }
    assert zones.facts_of("America/New_York", at=NOON).row()["utc_offset_then"] == "-04:00"


@every_case("name", ["America/New_York", "../../_sandbox/reset", "São Paulo", "東京", "a?b#c%2F d"])
def test_a_name_of_any_kind_is_one_part_of_the_path(name):
    path = urlsplit(zones.row_url("http://127.0.0.1:1", name)).path
    assert re.fullmatch(r"/plain/sheets/timezones/rows/[A-Za-z0-9_.~%-]+", path)


@pytest.mark.django_db
def test_the_demo_is_submitted_once_and_goes_through(sandbox: Sandbox, monkeypatch):
    names = ["Africa/Abidjan", "America/New_York", "Antarctica/Troll", "Etc/GMT+1"]
    monkeypatch.setattr(zones, "zone_names", lambda: names)
    monkeypatch.setattr(zones, "KNOBS", {**zones.KNOBS, "latency": None, "error_rates": {}})
    port = urlsplit(sandbox.url).port
    with override_settings(QUEUEOPS=_with(sandbox_port=port)):
        first = _seed()
        assert re.search(r"key of project demo: (qo_\S+)", first)
        again = _seed()
        assert again.count("goes on") == 2
        assert "key of project" not in again
        assert (Batch.objects.count(), ProducerKey.objects.count(), Credential.objects.count()) == (2, 1, 3)
        drain()
        watched = StringIO()
        call_command("watch_batch", str(Batch.objects.get(name=zones.BATCH_NAME).pk), stdout=watched)
        sandbox.turn(openai=None)  # as one that was started again has them
        assert "is done" in _seed()
        assert sandbox.turn()["openai"]["requests_per_minute"] == 500
    requests = Job.objects.filter(kind="http.request")
    assert {row: n for row, n in sandbox.effects().items() if row.startswith(zones.SHEET)} == {
        "timezones/Africa/Abidjan": 1,
        "timezones/America/New_York": 1,
    }
    assert sorted(requests.values_list("last_error_code", "status")) == [
        ("", "completed"),
        ("", "completed"),
        ("http_400", "failed"),
        ("http_403", "failed"),
    ]
    shown = watched.getvalue()
    assert "[################] 100 %  4/4  succeeded with failures  completed 2  failed 2" in shown
    assert "1 x http_403: PUT was answered with 403" in shown
    assert "Check the credential and its scopes." in shown


@pytest.mark.django_db(transaction=True)
def test_the_demo_writes_its_rows_in_few_calls_and_appends_within_a_limit(sandbox: Sandbox, monkeypatch):
    names = ["Africa/Abidjan", "America/New_York", "Europe/Berlin", "Etc/UTC"]
    monkeypatch.setattr(zones, "zone_names", lambda: names)
    monkeypatch.setattr(zones, "KNOBS", {**zones.KNOBS, "latency": None, "error_rates": {}})
    figures = {"service": "google-sheets", "call_type": "write", "scope": "project_user"}
    Limit.objects.create(name="writes", capacity=2, window_seconds=5.0, **figures)
    catalogue.forget()
    with override_settings(QUEUEOPS=_with(sandbox_port=urlsplit(sandbox.url).port)):
        assert "within writes" in _seed()
        drain()
        calls = sheets.count_calls(sandbox.url)
    catalogue.forget()
    writes = Job.objects.filter(service="google-sheets")
    assert set(writes.values_list("status")) == {("completed",)}
    assert writes.filter(kind="google_sheets.values_append").count() == 2  # New York and Berlin change their clocks
    assert calls == sheets.CallCount(accepted=3, refused=0)
    assert writes.filter(deferral_count__gt=0).exists()


@pytest.mark.django_db
def test_a_sandbox_at_another_port_is_told_to_the_credential_of_the_demo():
    project = make_project("demo")
    sheets.ensure_credential(project, "http://127.0.0.1:1")
    sheets.ensure_credential(project, "http://127.0.0.1:2")
    credential = Credential.objects.get()
    assert credential.base_url == "http://127.0.0.1:2"
    assert list(credential.projects.all()) == [project]
    assert find_principals([credential.name]) == {credential.name: ("demo", "robot")}


@pytest.mark.django_db
def test_the_demo_needs_leave_to_call_this_machine():
    with override_settings(QUEUEOPS=_with(allow_loopback_targets=False)), pytest.raises(CommandError):
        _seed()


@pytest.mark.django_db
def test_a_report_groups_dead_letters_by_cause():
    batch = make_batch(name="one")
    make_jobs(3, batch=batch)
    make_jobs(2, batch=batch, state=JobState.COMPLETED)
    make_dead_letters(2, batch=batch, fingerprint="a" * 32)
    make_dead_letters(1, batch=batch, fingerprint="b" * 32, error_code="other", error_message="y" * 1000)
    make_jobs(4, batch=batch, state=JobState.RATE_LIMITED)
    report = read_report(batch, now=timezone.now())
    assert (report.finished, report.total, report.is_done) == (5, 12, False)
    said = "[######----------]  41 %  5/12  running  completed 2  failed 3  queued 3  waiting for quota 4"
    assert report.line() == f"{said}  held by: a limit has no room"
    assert [reason.line()[:20] for reason in report.reasons] == ["2 x not_found: HTTP ", "1 x other: yyyyyyyyyy"[:20]]
    assert all(len(reason.line()) < 200 for reason in report.reasons)


def test_the_addresses_shown_at_the_end_are_those_of_the_admin():
    batch_id = uuid4()
    output = StringIO()
    SeedDemo(stdout=output)._say_where_to_look(batch_id)
    assert reverse("admin:jobs_batch_change", args=[batch_id]) in output.getvalue()
    assert reverse("admin:jobs_deadletter_changelist") in output.getvalue()


@every_case(("seconds", "text"), [(0.4, "0 s"), (59.7, "1 min 0 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")])
def test_durations_are_told_in_two_units(seconds, text):
    assert duration_text(timedelta(seconds=seconds)) == text


@pytest.mark.django_db
@pytest.mark.parametrize("wanted", ["nonsense", "01a1f9b9-c337-7472-a8ee-8f0202e31f33", "latest"])
def test_a_batch_that_is_not_there_is_named(wanted):
    with pytest.raises(CommandError, match="There is no batch"):
        call_command("watch_batch", wanted, stdout=StringIO())


def _seed(*arguments: str) -> str:
    output = StringIO()
    call_command("seed_demo", *arguments, stdout=output)
    return output.getvalue()


def _with(*, sandbox_port: int | None = 8001, allow_loopback_targets: bool = True) -> Environment:
    return replace(
        settings.QUEUEOPS,
        sandbox_port=sandbox_port or 0,
        allow_loopback_targets=allow_loopback_targets,
    )


@pytest.mark.django_db
def test_the_demos_users_have_used_a_part_of_their_allowance_however_often_it_is_started():
    make_project(zones.PROJECT)
    for at in (timezone.now(), timezone.now() + timedelta(seconds=5)):
        usage.ensure_usage(zones.PROJECT, actor="system:test", at=at)
    used = set(UsageTracking.objects.filter(project=zones.PROJECT).values_list("used", flat=True))
    assert used == {4_240, 3_120, 1_520, 320}
    assert max(used) < usage.TOKENS_EACH
    assert check_ledger(zones.PROJECT).differences == []


@pytest.mark.django_db
def test_the_demo_leaves_an_allowance_that_was_changed_as_it_is():
    make_project(zones.PROJECT)
    usage.ensure_usage(zones.PROJECT, actor="system:test", at=timezone.now())
    Allowance.objects.update(quota=7)
    usage.ensure_usage(zones.PROJECT, actor="system:test", at=timezone.now())
    assert Allowance.objects.get().quota == 7


@pytest.mark.django_db
def test_official_clients_find_the_demos_language_models_and_a_route_of_ones_own_is_kept():
    project = make_project("demo")
    language_model.ensure_credentials(project, "http://127.0.0.1:1")
    found = {model: route_for(routes_of("demo"), model, by).credential for model, by in ASKED.items()}
    assert found == {"gpt-any": "demo-openai", "claude-any": "demo-anthropic"}
    route = next(one for one in routes_of("demo") if one.provider == Protocol.OPENAI)
    save_route(route.pk, {"pattern": "mine"}, project_id="demo", actor="user:1")
    language_model.ensure_credentials(project, "http://127.0.0.1:2")
    assert sorted(one.pattern for one in routes_of("demo")) == ["claude-*", "mine"]
