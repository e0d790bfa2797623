"""Silences: nobody is told of what they cover, and it is told after them if it still is open."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.urls import reverse

from dashboards.services.ops import ops_snapshot
from jobs.features.watches import notify_alerts
from jobs.features.watches.notify_alerts import MAX_SILENCED, send_unsent
from jobs.models import Executor, Job
from queueops.audit.models import AuditEntry
from ratelimits.alerts import alerts
from ratelimits.alerts.silences import BadSilence, end_silences, silence_alerts
from ratelimits.models import AlertSilence, QuotaAlert
from tests.factories import make_route
from tests.ratelimits.counting import make_limit
from tests.support.alerts import resolve_alert
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

SILENCES = reverse("admin:ratelimits_alertsilence_changelist")


def open_alert(kind: str = "dead_letters", subject: str = "growth", **fields: Any) -> QuotaAlert:
    given = {"severity": "warning", "message": f"{kind} {subject}", "figures": {}, **fields}
    alert = alerts.open_alert(kind, subject, **given)
    assert alert is not None
    return alert


def silence(**fields: Any) -> AlertSilence:
    return silence_alerts(**{"hours": 1, "actor": "user:1", "reason": "a known fault", **fields})


def told() -> set[int]:
    send_unsent(50)
    return set(Job.objects.values_list("payload__alert", flat=True))


def pass_time(hours: float) -> None:
    AlertSilence.objects.update(until=F("until") - timedelta(hours=hours))


def test_what_is_silenced_is_told_when_the_silence_ends_and_it_still_is_open():
    make_route(least_severity="notice")
    silence(kind="dead_letters")
    held, over, other = open_alert(), open_alert(subject="size"), open_alert("outage", "http")
    assert told() == {other.pk}
    resolve_alert("dead_letters", "size")
    pass_time(1.01)
    assert told() == {other.pk, held.pk}
    assert over.pk not in told()


@pytest.mark.parametrize("channel", ["email", "pagerduty"])
@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_of_what_opened_and_ended_in_a_silence_nobody_is_told_the_end(channel: str, severity: str):
    make_route(channel=channel, target="oncall@example.org" if channel == "email" else "k" * 32)
    silence(kind="dead_letters")
    open_alert(severity=severity)
    assert told() == set()
    resolve_alert("dead_letters", "growth")
    assert told() == set()
    assert not QuotaAlert.objects.filter(notified_at=None).exists(), "it takes no place"
    pass_time(1.01)
    assert told() == set()


def test_the_end_of_what_was_told_before_the_silence_is_told_after_it():
    make_route()
    alert, old = open_alert(severity="critical"), open_alert("outage", "http", severity="critical")
    assert told() == {alert.pk, old.pk}
    Job.objects.filter(payload__alert=old.pk).delete()  # as retention does
    QuotaAlert.objects.filter(pk=old.pk).update(opened_at=F("opened_at") - timedelta(days=400))
    silence(kind="dead_letters")
    silence(kind="outage")
    resolve_alert("dead_letters", "growth")
    resolve_alert("outage", "http")
    send_unsent(50)
    assert not Job.objects.filter(payload__event="resolved").exists()
    pass_time(1.01)
    send_unsent(50)
    ends = Job.objects.filter(payload__event="resolved").values_list("payload__alert", flat=True)
    assert set(ends) == {alert.pk, old.pk}


def test_an_ended_silence_holds_nothing_back():
    make_route()
    one = silence(kind="dead_letters")
    alert = open_alert()
    assert told() == set()
    assert end_silences([one.pk], actor="user:2") == 1
    assert end_silences([one.pk], actor="user:2") == 0
    assert told() == {alert.pk}
    actions = AuditEntry.objects.order_by("pk").values_list("action", "actor")
    assert [one for one in actions if "silence" in one[0]] == [("silence_alerts", "user:1"), ("end_silence", "user:2")]


def test_it_covers_what_fits_all_that_it_names():
    limit, other = make_limit(name="a", scope="project"), make_limit(name="b", scope="project")
    both = silence(limit=limit, project="acme")
    of = {
        (one.pk, project): open_alert("exceeded", f"{one.pk:08d}:project:{project}", limit_id=one.pk)
        for one in (limit, other)
        for project in ("acme", "globex")
    }
    assert {key for key, alert in of.items() if both.covers(alert)} == {(limit.pk, "acme")}
    assert str(both) == "limit a, project acme"


def test_silenced_alerts_do_not_keep_others_from_being_told():
    make_route()
    silence(kind="dead_letters")
    QuotaAlert.objects.bulk_create(
        QuotaAlert(kind="dead_letters", severity="warning", subject=str(n), message="m") for n in range(MAX_SILENCED)
    )
    other = open_alert("outage", "http")
    assert told() == {other.pk}


@pytest.mark.parametrize("kind", ["dead_letters", "usage"])
def test_more_alerts_silenced_for_a_project_than_one_look_reads_hide_no_later_one(monkeypatch, kind):
    monkeypatch.setattr(notify_alerts, "MAX_SILENCED", 2)
    monkeypatch.setattr(notify_alerts, "_passed", notify_alerts._Passed())
    monkeypatch.setattr(notify_alerts, "PASSING", timedelta())
    make_route(least_severity="notice")
    silence(project="acme")
    for number in range(120):
        open_alert(kind, str(number), figures={"projects": ["acme"]})
    other = open_alert(kind, "growth")
    assert [told(), told(), told()] == [set(), set(), {other.pk}]
    assert QuotaAlert.objects.filter(notified_at=None).count() == 120


def test_no_headline_names_what_is_silenced_and_the_list_of_alerts_says_until_when():
    Executor.objects.create(host="h", pid=1, process_started_at=0, cluster_pid=1, slots=1)
    open_alert("exceeded", "00000001:*", severity="critical", message="refused with 429")
    assert ops_snapshot()["health"]["text"] == "refused with 429"
    one = silence(kind="exceeded")
    snapshot = ops_snapshot()
    assert snapshot["health"]["tone"] == "good"
    [row] = snapshot["alerts"]
    assert row["silenced_until"] == one.until.isoformat(timespec="milliseconds")


@every_case(
    "wrong",
    [{}, {"kind": "outage", "hours": 0}, {"kind": "outage", "hours": -1}, {"kind": "outage", "hours": 721}],
    undone=True,
)
def test_what_names_nothing_or_lasts_wrongly_is_refused(wrong):
    with pytest.raises(BadSilence):
        silence(**wrong)
    assert not AlertSilence.objects.exists()


def test_the_database_refuses_one_of_everything(django_db_blocker):
    with pytest.raises(IntegrityError), transaction.atomic():
        AlertSilence.objects.create(until="2030-01-01T00:00Z", reason="all", created_by="user:1")


def test_an_operator_silences_from_the_alerts_page_and_ends_it_from_the_list():
    limit = make_limit(name="sheets", scope="project")
    alert = open_alert("exceeded", f"{limit.pk:08d}:project:acme", limit_id=limit.pk)
    client = signed_in("operator")
    page = reverse("admin:ratelimits_quotaalert_change", args=[alert.pk])
    ask = page.replace("/change/", "/silence/")
    assert ask in client.get(page).content.decode()
    form = client.get(ask).content.decode()
    assert re.findall(r'name="of" value="([^"]*)"', form) == [f"limit:{limit.pk}", "kind:exceeded", "project:acme"]
    given = {"confirmed": "yes", "of": [f"limit:{limit.pk}", "project:acme"], "hours": "4", "reason": "known"}
    answer = client.post(ask, given, follow=True).content.decode()
    assert "Nobody is told of alerts of limit sheets, project acme until" in answer
    assert "Silenced" in client.get(page).content.decode()
    one = AlertSilence.objects.get()
    assert timedelta(hours=3.9) < one.until - one.created_at <= timedelta(hours=4.1)
    assert "sheets" in client.get(SILENCES).content.decode()
    end = reverse("admin:ratelimits_alertsilence_change", args=[one.pk]).replace("/change/", "/end/")
    client.post(end, {"confirmed": "yes"})
    assert not AlertSilence.objects.standing().exists()
    assert end not in client.get(end.replace("/end/", "/change/")).content.decode()


@every_case(
    "wrong",
    [{"of": []}, {"of": ["kind:outage"]}, {"of": ["limit:7"]}, {"hours": "9999"}, {"hours": ""}, {"reason": ""}],
    undone=True,
)
def test_wrong_input_silences_nothing(wrong):
    alert = open_alert()
    ask = reverse("admin:ratelimits_quotaalert_change", args=[alert.pk]).replace("/change/", "/silence/")
    given = {"confirmed": "yes", "of": ["kind:dead_letters"], "hours": "1", "reason": "known", **wrong}
    assert signed_in("operator").post(ask, given).status_code == 200
    assert not AlertSilence.objects.exists()


def test_a_viewer_sees_silences_and_may_make_none():
    alert = open_alert()
    viewer = signed_in("viewer")
    ask = reverse("admin:ratelimits_quotaalert_change", args=[alert.pk]).replace("/change/", "/silence/")
    assert viewer.get(SILENCES).status_code == 200
    given = {"confirmed": "yes", "of": ["kind:dead_letters"], "hours": "1", "reason": "x"}
    assert viewer.post(ask, given).status_code == 403
