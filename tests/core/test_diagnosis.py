"""What `manage.py doctor` says of charts, metrics and issuers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.test import override_settings

from jobs.handlers import registry
from jobs.models import BatchPolicy, FlowCursor, Objective, PauseSwitch
from queueops.site.diagnosis import questions
from queueops.site.diagnosis.access import examine_issuers
from queueops.site.diagnosis.database import examine_replica
from queueops.site.diagnosis.finding import DoctorFinding, DoctorVerdict
from queueops.site.diagnosis.surroundings import examine_metrics, examine_settings
from queueops.site.diagnosis.upkeep import examine_kinds, examine_sums, examine_zones
from queueops.tenancy.models import Issuer
from ratelimits.models import Budget, Limit
from tests.factories import make_allowance, make_window
from tests.support.issuers import Signer, make_issuer, publishing


@pytest.mark.django_db
def test_sums_that_stand_still_are_told_with_what_to_do():
    assert examine_sums().verdict is DoctorVerdict.OK
    FlowCursor.objects.create(log="events", counted=5, mark=9, marked_at=Now() - timedelta(minutes=10))
    found = examine_sums()
    assert (found.verdict, found.observation) == (DoctorVerdict.WARN, "charts and metrics are 600 s behind the job log")
    assert "pg_stat_activity" in found.advice
    FlowCursor.objects.update(counted=9)
    assert examine_sums().verdict is DoctorVerdict.OK


@pytest.mark.django_db
def test_a_stored_zone_that_the_database_does_not_know_is_told_with_its_budget():
    make_allowance(time_zone="No/Such")
    for name, zone, period in (("a", "localtime", "month"), ("b", "UTC", "day"), ("c", "localtime", "total")):
        Budget.objects.create(project_id="acme", name=name, amount=1, time_zone=zone, period=period)
    found = examine_zones()
    assert found.verdict is DoctorVerdict.FAIL
    assert found.observation == "budget a of acme: localtime; the allowance of acme: No/Such"
    Budget.objects.all().delete()
    make_allowance(time_zone="UTC")
    assert examine_zones().verdict is DoctorVerdict.OK


@pytest.mark.django_db
def test_a_question_that_raises_leaves_the_others_their_answers(monkeypatch: pytest.MonkeyPatch):
    def examine_what_is_odd() -> DoctorFinding:
        raise KeyError("odd")

    monkeypatch.setattr(questions, "DATABASE_QUESTIONS", (examine_what_is_odd, examine_sums))
    *_, odd, sums = questions.examine()
    assert (odd.subject, odd.verdict, odd.observation) == ("what is odd", DoctorVerdict.FAIL, "KeyError: 'odd'")
    assert sums.verdict is DoctorVerdict.OK


def settings_with(**fields: Any) -> override_settings:
    return override_settings(QUEUEOPS=replace(settings.QUEUEOPS, **fields), DEBUG=fields["debug"])


def test_production_without_a_token_for_metrics_is_told():
    ok, warn = DoctorVerdict.OK, DoctorVerdict.WARN
    for debug, token, verdict in ((True, "", ok), (False, "", warn), (False, "a-token-for-scrapers", ok)):
        with settings_with(debug=debug, metrics_token=token):
            found = examine_metrics()
        assert found.verdict is verdict
        assert "a-token" not in found.observation + found.advice


def test_production_on_the_embedded_server_is_told_with_what_that_means():
    for debug, url, warned in ((True, "", 0), (False, "", 1), (False, "postgresql://h/q", 0)):
        with settings_with(debug=debug, database_url=url):
            found = [one for one in examine_settings() if "queueops.W001" in one.observation]
        assert [one.verdict for one in found] == [DoctorVerdict.WARN] * warned
        assert all("DATABASE_URL is not set" in one.observation for one in found)
        assert all("no standby" in one.advice for one in found)


@pytest.mark.django_db
def test_an_issuer_whose_keys_cannot_be_fetched_is_told_by_name():
    assert examine_issuers().verdict is DoctorVerdict.OK
    make_issuer(issuer="https://shared.example.org")
    with publishing(Signer()) as server:
        make_issuer(jwks_url=server.url, name="field app")
        assert (found := examine_issuers()).verdict is DoctorVerdict.OK, found
        server.status = 500
        found = examine_issuers()
    assert (found.verdict, found.observation) == (
        DoctorVerdict.WARN,
        "field app (acme): The address answered with status 500.",
    )
    Issuer.objects.filter(name="field app").update(enabled=False)
    assert examine_issuers().verdict is DoctorVerdict.OK


def test_without_a_replica_no_server_is_asked_for_one():
    found = examine_replica()
    assert (found.verdict, found.observation) == (DoctorVerdict.OK, "none is set; everything is read from the primary")


@pytest.mark.django_db
def test_what_goes_by_the_former_name_of_a_kind_is_told_with_the_name_that_it_has_now(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(registry, "_aliases", dict(registry._aliases))

    @registry.handler(kind="test.new", service="test", payload=dict, aliases=("test.old",))
    async def handle(job: registry.RunningJob[dict[str, object]]) -> None: ...

    for kind in ("test.new", "test.of_other_workers"):
        Objective.objects.create(name=f"{kind} is soon", kind=kind, within_seconds=60)
    assert examine_kinds().verdict is DoctorVerdict.OK
    Objective.objects.create(name="old is soon", kind="test.old", within_seconds=60)
    Limit.objects.create(
        name="few at once", service="test", algorithm="concurrency", scope="global", kind="test.old", capacity=5
    )
    PauseSwitch.objects.create(scope="kind", key="test.old", paused_by="user:1")
    BatchPolicy.objects.create(kind="test.old", via="batch")
    make_window(scope="kind", key="test.old")
    make_window(scope="kind", key="test.old", next_change_at=None)  # is over
    found = examine_kinds()
    assert found.verdict is DoctorVerdict.WARN
    assert found.observation.split("; ") == [
        "limit few at once: test.old is test.new now",
        "pause test.old: test.old is test.new now",
        "window test.old: test.old is test.new now",
        "objective old is soon: test.old is test.new now",
        "way by batch test.old: test.old is test.new now",
    ]
