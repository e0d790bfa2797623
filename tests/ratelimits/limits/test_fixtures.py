"""The limits to start with: their figures, and that loading them never undoes an operator's work."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from jobs.services.claim.provider_quotas import note_caps
from queueops.core.env.environment import Environment
from queueops.core.env.reading import read
from queueops.core.notify import Channel
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_caps
from ratelimits.limiter.provider_sync import Statement
from ratelimits.limits import catalogue
from ratelimits.limits.catalogue import rules_for
from ratelimits.limits.defaults import (
    CAPACITY_SETTINGS,
    FIXTURES,
    Loaded,
    LoadOutcome,
    UnknownDefaults,
    default_fields,
    load_limits,
    load_limits_if_none,
    names_of_defaults,
    tell_unheeded_settings,
    unheeded_settings,
)
from ratelimits.limits.validation import check_limit
from ratelimits.models import Limit, LimitOverride
from ratelimits.rate_headers import read_quotas
from ratelimits.subjects import Subject
from tests.support.audit import entries_written
from tests.support.cases import every_case

NAMES = ("anthropic", "gemini", "google_sheets", "llm", "openai")


def every_limit() -> list[Limit]:
    return [Limit(**one) for name in NAMES for one in default_fields(name)]


def limits_of(name: str) -> dict[str, Limit]:
    return {one["name"]: Limit(**one) for one in default_fields(name)}


@pytest.fixture
def trail():
    """Collect what the audit trail is told."""
    with entries_written() as told:
        yield told


def test_the_files_are_the_known_defaults():
    assert names_of_defaults() == NAMES


@pytest.mark.django_db
@every_case("limit", every_limit())
def test_every_default_passes_the_checks_that_an_operators_limit_passes(limit):
    limit.full_clean()
    assert check_limit(limit).faults == {}
    assert "onfirm it" in limit.note


@every_case("limit", every_limit())
def test_no_default_lets_more_through_in_a_window_than_the_provider_allows(limit):
    if limit.provider_quota is None:
        return
    refilled = (limit.window_seconds or 0) * (limit.refill_per_second or 0)
    assert limit.capacity + refilled <= limit.provider_quota * (1 + 1e-12)


def test_sheets_counts_reads_and_writes_apart_per_project_and_per_user_of_a_project():
    found = limits_of("google_sheets").values()
    assert {(one.call_type, one.scope, one.algorithm, one.provider_quota) for one in found} == {
        ("read", "project", "token_bucket", 300),
        ("write", "project", "token_bucket", 300),
        ("read", "project_user", "sliding_window", 60),
        ("write", "project_user", "sliding_window", 60),
    }
    assert {(one.capacity, one.refill_per_second) for one in found if one.scope == "project"} == {(9, 4.82)}
    assert {(one.capacity, one.window_seconds) for one in found if one.scope != "project"} == {(60, 60)}
    assert {one.service for one in found} == {"google-sheets"}


def test_gemini_counts_each_model_and_its_day_ends_at_midnight_in_california():
    found = limits_of("gemini")
    assert all(one.per_model and one.scope == "project" and one.service == "gemini" for one in found.values())
    day = found["gemini-requests-per-day"]
    assert (day.algorithm, day.reset_zone, day.guard_seconds) == ("fixed_window", "America/Los_Angeles", 0.5)
    assert found["gemini-input-tokens"].unit == "tokens"


def test_openai_and_anthropic_start_at_their_entry_tier_and_take_over_what_their_answers_state():
    found = limits_of("openai") | limits_of("anthropic")
    assert {name: (one.service, one.unit, one.capacity) for name, one in found.items()} == {
        "openai-requests": ("openai", "requests", 500),
        "openai-tokens": ("openai", "tokens", 30_000),
        "anthropic-requests": ("anthropic", "requests", 50),
        "anthropic-input-tokens": ("anthropic", "input_tokens", 30_000),
        "anthropic-output-tokens": ("anthropic", "output_tokens", 8_000),
    }
    assert all(one.per_model and one.learns_caps and one.window_seconds == 60 for one in found.values())
    assert not found["anthropic-input-tokens"].counts_cached, "what is read from its cache is free there"


@pytest.mark.django_db
def test_a_job_of_openai_or_anthropic_that_names_no_service_is_held_to_the_entry_tier_until_more_is_stated():
    load_limits(["openai", "anthropic"])
    for service, headers in (
        ("openai", {"x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "4999",
                    "x-ratelimit-reset-requests": "12ms"}),
        ("anthropic", {"anthropic-ratelimit-requests-limit": "5000", "anthropic-ratelimit-requests-remaining": "4999",
                       "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:00Z"}),
    ):  # fmt: skip
        subject = Subject(service, "write", "acme", "", "m")
        [rule] = [one for one in rules_for(subject) if one.unit == "requests"]
        assert rule.capacity < 1000
        note_caps([Statement(subject, tuple(read_quotas(headers)))], actor="executor:x")
        assert LimitOverride.objects.get(limit=rule.id).capacity == 5000


def test_the_figures_of_the_plain_llm_service_are_those_of_its_settings(settings, tmp_path):
    stored = {row["fields"]["name"]: row["fields"] for row in json.loads((FIXTURES / "llm.json").read_text())}
    defaults = {item.name: item.default for item in fields(Environment)}
    assert {name: stored[name]["capacity"] for name in stored} == {
        name: defaults[setting] for name, setting in CAPACITY_SETTINGS.items()
    }
    assert {name: one.capacity for name, one in limits_of("llm").items()} == {"llm-requests": 60, "llm-tokens": 30_000}
    found = read({"RATE_LIMIT_RPM": "7", "RATE_LIMIT_TPM": "900"}, default_data_dir=tmp_path)
    settings.QUEUEOPS = replace(
        settings.QUEUEOPS, rate_limit_rpm=found.rate_limit_rpm, rate_limit_tpm=found.rate_limit_tpm
    )
    assert {name: one.capacity for name, one in limits_of("llm").items()} == {"llm-requests": 7, "llm-tokens": 900}


@pytest.mark.django_db
def test_loading_creates_what_is_missing_and_changes_nothing_the_second_time(trail):
    first = load_limits(["llm", "google_sheets", "llm"])
    assert [one.outcome for one in first] == [LoadOutcome.CREATED] * 6
    assert len(trail) == 6
    before = list(Limit.objects.values())
    assert {one.outcome for one in load_limits(["google_sheets", "llm"])} == {LoadOutcome.SAME}
    assert list(Limit.objects.values()) == before
    assert len(trail) == 6


@pytest.mark.django_db
def test_what_an_operator_changed_stays_unless_the_defaults_are_asked_for_again(trail):
    load_limits(["llm"])
    Limit.objects.filter(name="llm-tokens").update(capacity=5, headroom_percent=10, enabled=False)
    (_, kept) = load_limits(["llm"])
    assert kept == Loaded("llm-tokens", LoadOutcome.KEPT, ("capacity",))
    assert Limit.objects.get(name="llm-tokens").capacity == 5
    (same, replaced) = load_limits(["llm"], replace=True)
    assert (same.outcome, replaced.outcome) == (LoadOutcome.SAME, LoadOutcome.REPLACED)
    limit = Limit.objects.get(name="llm-tokens")
    assert (limit.capacity, limit.headroom_percent, limit.enabled) == (30_000, 10, False)
    assert (trail[-1]["action"], trail[-1]["target"]) == ("change_limit", "limit llm-tokens")


@pytest.mark.django_db
def test_an_unknown_name_loads_nothing():
    with pytest.raises(UnknownDefaults, match="there are anthropic, gemini, google_sheets, llm, openai"):
        load_limits(["llm", "../llm"])
    assert not Limit.objects.exists()


@pytest.mark.django_db
def test_only_an_installation_without_any_limit_gets_them_unasked():
    assert len(load_limits_if_none()) == 14
    assert load_limits_if_none() == ()
    Limit.objects.exclude(name="llm-tokens").delete()
    assert load_limits_if_none() == ()
    assert Limit.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_loading_is_heard_by_executors_and_seen_by_this_process_at_once():
    catalogue.forget()
    assert catalogue.rules() == ()
    parameters = connection.get_connection_params()
    wanted = {key: parameters[key] for key in ("host", "port", "user", "password", "dbname") if parameters.get(key)}
    with psycopg.connect(**wanted, autocommit=True) as listener:
        listener.execute(f"LISTEN {Channel.LIMITS}")
        load_limits(["llm"])
        assert {rule.name for rule in catalogue.rules()} == {"llm-requests", "llm-tokens"}
        assert [heard.channel for heard in listener.notifies(timeout=10, stop_after=1)] == [Channel.LIMITS]
        load_limits(["llm"])
        assert list(listener.notifies(timeout=0)) == []
    Limit.objects.all().delete()
    catalogue.forget()


@pytest.mark.django_db
def test_the_command_says_what_became_of_each_limit(capsys):
    call_command("load_limits", "llm")
    Limit.objects.filter(name="llm-requests").update(capacity=5)
    call_command("load_limits", "llm")
    call_command("load_limits", "llm", "--replace")
    assert capsys.readouterr().out.splitlines() == [
        "llm-requests: created",
        "llm-tokens: created",
        "llm-requests: kept as it is; it differs from its defaults (capacity)",
        "llm-tokens: as its defaults already",
        "llm-requests: set to its defaults again (capacity)",
        "llm-tokens: as its defaults already",
    ]


@pytest.mark.django_db
def test_the_command_without_names_loads_all_and_refuses_unknown_ones():
    with pytest.raises(CommandError, match="no default limits nobody"):
        call_command("load_limits", "nobody")
    assert not Limit.objects.exists()
    call_command("load_limits")
    assert Limit.objects.count() == 14


@pytest.mark.django_db
def test_what_the_environment_says_and_the_limit_does_not_is_told_with_the_command(settings, monkeypatch, caplog):
    monkeypatch.setenv("RATE_LIMIT_RPM", "600")
    settings.QUEUEOPS = replace(settings.QUEUEOPS, rate_limit_rpm=600)
    none = "RATE_LIMIT_RPM is 600 and there is no limit llm-requests: manage.py load_limits llm"
    assert unheeded_settings() == [none]
    load_limits(["llm"])
    assert unheeded_settings() == []
    Limit.objects.filter(name="llm-requests").update(capacity=60)
    other = "RATE_LIMIT_RPM is 600 and the limit llm-requests says 60: manage.py load_limits llm --replace"
    tell_unheeded_settings()
    assert caplog.messages == [other]
    assert (found := examine_caps()).observation == other
    assert found.verdict is DoctorVerdict.WARN
    load_limits(["llm"], replace=True)
    assert examine_caps().verdict is DoctorVerdict.OK
    monkeypatch.delenv("RATE_LIMIT_RPM")
    Limit.objects.filter(name="llm-requests").update(capacity=60)  # an operator's own: nothing contradicts it
    assert unheeded_settings() == []
