"""What `manage.py doctor` says of charts, metrics and issuers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models.functions import Now
from django.test import override_settings

from jobs.models import FlowCursor
from queueops.site.diagnosis import (
    DoctorVerdict,
    examine_issuers,
    examine_metrics,
    examine_replica,
    examine_settings,
    examine_sums,
)
from queueops.tenancy.models import Issuer
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


@pytest.mark.parametrize(
    ("debug", "token", "verdict"),
    [(True, "", DoctorVerdict.OK), (False, "", DoctorVerdict.WARN), (False, "a-token-for-scrapers", DoctorVerdict.OK)],
)
def test_production_without_a_token_for_metrics_is_told(debug, token, verdict):
    with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, debug=debug, metrics_token=token)):
        found = examine_metrics()
    assert found.verdict is verdict
    assert "a-token" not in found.observation + found.advice


@pytest.mark.parametrize(("debug", "url", "warned"), [(True, "", 0), (False, "", 1), (False, "postgresql://h/q", 0)])
def test_production_on_the_embedded_server_is_told_with_what_that_means(debug, url, warned):
    with override_settings(DEBUG=debug, QUEUEOPS=replace(settings.QUEUEOPS, debug=debug, database_url=url)):
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
