"""An alert is of a cause and a project: nothing that is open, or looked after, swallows another."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db.models import F
from django.urls import reverse

from jobs.features.watches import alert_groups, watch_letters
from jobs.features.watches.notify_alerts import KIND, send_unsent
from jobs.features.watches.watch import watch_outages
from jobs.features.watches.watch_letters import watch_dead_letters
from jobs.models import Batch, DeadLetter, Job, RefusedCalls, ServiceBreaker
from jobs.testing import drain
from queueops.core.clock import Now
from ratelimits.alerts.alerts import acknowledge_alerts, open_alert, resolve
from ratelimits.models import QuotaAlert
from tests.factories import make_batch, make_dead_letters, make_jobs, make_project, make_route
from tests.support.alert_mail import email_route, text_of
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

A, B = "a" * 32, "b" * 32


@pytest.fixture(autouse=True)
def small_thresholds(settings: Any) -> None:
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, alert_dead_letters=4, alert_open_dead_letters=10)


def open_ones() -> set[str]:
    watch_dead_letters()
    return set(QuotaAlert.objects.filter(resolved_at=None).values_list("subject", flat=True))


def pass_time(**of: float) -> None:
    """Let everything that was seen and told have been so much earlier."""
    by = timedelta(**of)
    DeadLetter.objects.update(created_at=F("created_at") - by)
    QuotaAlert.objects.update(opened_at=F("opened_at") - by, notified_at=F("notified_at") - by)


def acknowledge() -> None:
    acknowledge_alerts(list(QuotaAlert.objects.values_list("pk", flat=True)), actor="user:1")


def told() -> list[int]:
    """The alerts of the messages that are new since the last look, to each route one."""
    send_unsent(50)
    found = [job.payload["alert"] for job in Job.objects.filter(kind=KIND).order_by("pk")]
    Job.objects.filter(kind=KIND).delete()
    return found


def test_a_single_dead_letter_is_told_of_and_its_cause_once():
    [letter] = make_dead_letters(1, error_code="forbidden", fingerprint=A)
    assert open_ones() == {f"cause:{A}/acme"}
    assert QuotaAlert.objects.get().message == f"failed for good: forbidden (http.request, acme); {letter.remediation}"
    make_dead_letters(5, error_code="forbidden", fingerprint=A)
    watch_dead_letters()
    assert [alert.figures["dead_letters"] for alert in QuotaAlert.objects.all()] == [6]
    make_dead_letters(1, fingerprint=B)
    assert open_ones() == {f"cause:{A}/acme", f"cause:{B}/acme"}
    DeadLetter.objects.filter(fingerprint=A).update(resolution="discarded")
    assert open_ones() == {f"cause:{B}/acme"}
    assert QuotaAlert.objects.count() == 2


def test_a_burst_that_somebody_looks_after_swallows_no_later_cause_and_no_other_project():
    make_route()
    make_dead_letters(30, fingerprint=A)
    assert open_ones() == {f"cause:{A}/acme"}
    assert len(told()) == 1
    acknowledge()
    later = (("acme", B), ("globex", A), ("globex", B))
    for project, cause in later:
        pass_time(minutes=2)
        make_dead_letters(1, project=project, fingerprint=cause)
        make_dead_letters(9, fingerprint=A)  # it goes on
        assert f"cause:{cause}/{project}" in open_ones()
        [alert] = told()
        assert QuotaAlert.objects.get(pk=alert).subject == f"cause:{cause}/{project}"
    unseen = QuotaAlert.objects.filter(acknowledged_at=None).values_list("subject", flat=True)
    assert set(unseen) == {f"cause:{cause}/{project}" for project, cause in later}
    pass_time(hours=1)
    assert len(open_ones()) == 4, "a cause is open as long as a letter of it is"


def test_a_cause_told_long_ago_that_comes_fast_is_news_and_one_that_always_does_is_not():
    make_dead_letters(1, fingerprint=A)
    make_dead_letters(6, fingerprint=B)
    assert len(open_ones()) == 2
    for _ in range(2):
        pass_time(minutes=16)
        make_dead_letters(6, fingerprint=B)
        make_dead_letters(1, fingerprint=A)
        assert open_ones() == {f"cause:{A}/acme", f"cause:{B}/acme"}
    make_dead_letters(4, fingerprint=A)
    assert open_ones() == {f"cause:{A}/acme", f"cause:{B}/acme", f"grows:{A}/acme"}
    pass_time(minutes=16)
    make_dead_letters(1, fingerprint=A)
    assert open_ones() == {f"cause:{A}/acme", f"cause:{B}/acme"}


def test_many_open_dead_letters_of_a_project_are_told_of_when_their_causes_were_told_long_ago():
    for project in ("acme", "globex"):
        make_dead_letters(10, project=project, fingerprint=A)
    pass_time(days=2)
    assert open_ones() == {"size:acme", "size:globex"}
    DeadLetter.objects.filter(project="acme").update(resolution="discarded")
    assert open_ones() == {"size:globex"}
    make_dead_letters(30, fingerprint=B)
    assert open_ones() == {"size:globex", f"cause:{B}/acme"}, "one incident is one alert"


def test_more_causes_than_are_told_one_by_one_are_one_alert_of_their_project(monkeypatch):
    monkeypatch.setattr(watch_letters, "MAX_CAUSES_TOLD", 2)
    for cause in range(5):
        make_dead_letters(1, fingerprint=f"{cause}" * 32)
    make_dead_letters(1, project="globex")
    assert {"more:acme", f"cause:{'f' * 32}/globex"} <= open_ones()
    assert QuotaAlert.objects.filter(subject__startswith="cause:").count() == 3
    assert "of 3 causes besides" in QuotaAlert.objects.get(subject="more:acme").message


def test_what_opens_within_a_minute_of_one_cause_is_one_message_that_names_its_projects(mail):
    everybody, theirs = email_route(), email_route(name="globex", project="globex", target="globex@example.org")
    make_jobs(1, project="umbrella", held=True)  # it may meet the same
    for project in ("acme", "globex", "initech"):
        make_dead_letters(1, project=project, fingerprint=A)
        watch_dead_letters()
        assert send_unsent(50) == 0
        QuotaAlert.objects.update(opened_at=F("opened_at") - timedelta(seconds=21))
    assert send_unsent(50) == 2
    first = QuotaAlert.objects.order_by("pk")[0]
    drain()
    subjects = {message["To"]: " ".join(message["Subject"].split()) for message in mail.messages}
    assert subjects["oncall@example.org"].endswith("(also globex, initech)")
    assert "(http.request, globex)" in subjects["globex@example.org"]
    assert "acme" not in subjects["globex@example.org"]
    assert "initech" in text_of(mail) or "initech" in str(mail.messages[0])
    assert set(QuotaAlert.objects.exclude(pk=first.pk).values_list("told_with", flat=True)) == {first.pk}
    client = signed_in("operator")
    page = client.get(reverse("admin:ratelimits_quotaalert_change", args=[first.pk])).content.decode()
    assert re.search(r"Told in one message with</dt><dd><a [^>]*>globex</a>, <a [^>]*>initech</a>", page)
    listed = client.get(reverse("admin:ratelimits_quotaalert_changelist"), {"project": "globex"}).content.decode()
    assert "(http.request, globex)" in listed
    assert "(http.request, acme)" not in listed
    make_dead_letters(1, project="umbrella", fingerprint=A)
    watch_dead_letters()
    pass_time(seconds=61)
    assert send_unsent(50) == 1, "a project that meets it later is told of"
    assert (everybody.enabled, theirs.enabled) == (True, True)


def test_nobody_waits_for_other_projects_where_none_has_work():
    make_route()
    make_dead_letters(1)
    watch_dead_letters()
    assert len(told()) == 1


def test_the_end_of_what_was_told_together_is_told_when_all_of_it_is_over():
    make_route()
    figures = {"cause": "svc one"}
    for project in ("acme", "globex"):
        open_alert(
            "dead_letters", project, severity="critical", message=project, figures={**figures, "projects": [project]}
        )
    QuotaAlert.objects.update(opened_at=Now() - timedelta(hours=1))
    [first] = told()
    resolve(QuotaAlert.objects.filter(pk=first))
    assert told() == []
    resolve(QuotaAlert.objects.all())
    assert told() == [first]


def test_many_causes_of_one_project_are_few_messages_and_none_is_lost():
    make_route()
    for cause in range(9):
        make_dead_letters(1, fingerprint=f"{cause}" * 32)
    watch_dead_letters()
    assert len(told()) == alert_groups.MAX_CAUSES_APART
    assert told() == []
    make_dead_letters(1, project="globex")
    watch_dead_letters()
    assert len(told()) == 1, "another project does not wait for them"
    pass_time(minutes=11)
    QuotaAlert.objects.filter(notified_at__isnull=False).update(notified_at=Now())
    assert len(told()) == 1
    assert not QuotaAlert.objects.filter(notified_at=None).exists()


def test_a_project_that_joins_an_outage_is_told_by_its_own_route_and_nobody_twice():
    for name in ("acme", "globex", "initech"):
        make_project(name)
    everybody, theirs = make_route(), make_route(name="theirs", project="initech")

    def out(project: str) -> list[int]:
        ServiceBreaker.objects.create(project_id=project, service="svc", opened_at=Now(), next_probe_at=Now())
        watch_outages()
        send_unsent(50)
        return [job.payload["route"] for job in Job.objects.filter(kind=KIND, payload__event="opened").order_by("pk")]

    assert out("acme") == [everybody.pk]
    assert out("globex") == [everybody.pk] * 2, "it has become critical"
    assert out("initech") == [everybody.pk] * 2 + [theirs.pk]


def test_what_stops_a_batch_or_a_credential_or_kills_workers_is_told_by_that_alert_alone():
    batch = make_batch(guard={"first": 50, "percent": 20, "code": "http_400"}, guard_state="stopped")
    make_dead_letters(3, error_code="http_400", fingerprint=A, batch_id=batch.pk)
    calls = {"project_id": "acme", "service": "openai", "failures": 20, "stopped_at": Now()}
    stop = RefusedCalls.objects.create(name="openai with key", credential="key", code="http_401", **calls)
    make_dead_letters(3, error_code="http_401", fingerprint=B, service="openai")
    open_alert("worker_died", "a.kind", severity="critical", message="a worker died", figures={})
    make_dead_letters(1, error_code="poison", fingerprint="c" * 32, kind="a.kind")
    assert open_ones() == {"a.kind"}
    make_dead_letters(1, error_code="http_400", fingerprint=A, project="globex")
    make_dead_letters(1, error_code="http_422", fingerprint="d" * 32, batch_id=batch.pk)
    assert open_ones() == {"a.kind", f"cause:{A}/globex", f"cause:{'d' * 32}/acme"}, "others are told"
    stop.delete()
    Batch.objects.update(guard_state="went_on")
    resolve(QuotaAlert.objects.filter(kind="worker_died"))
    assert {f"cause:{A}/acme", f"cause:{B}/acme", f"cause:{'c' * 32}/acme"} <= open_ones(), "what is left is told"


def test_a_cause_that_may_stop_its_batch_waits_a_minute_for_that():
    batch = make_batch(guard={"first": 50, "percent": 20}, guard_state="trial")
    make_dead_letters(3, error_code="http_400", fingerprint=A, batch_id=batch.pk)
    assert open_ones() == set()
    pass_time(seconds=61)
    assert open_ones() == {f"cause:{A}/acme"}
