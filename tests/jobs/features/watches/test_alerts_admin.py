"""The admin's screens of alerts and of where they are sent."""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from jobs.models import Job
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import CredentialPool
from queueops.tenancy.secrets.signing import open_signing_secret
from ratelimits.alerts.alerts import open_alert, tell_exceeded
from ratelimits.limits import catalogue
from ratelimits.models import AlertRoute, Budget, BudgetPeriod, Limit, QuotaAlert
from ratelimits.subjects import counter_id
from tests.factories import make_project, make_route
from tests.support.alerts import note_saturated
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

ALERTS = "/admin/ratelimits/quotaalert/"
ROUTES = "/admin/ratelimits/alertroute/"
HOSTILE = "<img src=x onerror=alert(1)>"


def make_alert(**fields) -> QuotaAlert:
    return QuotaAlert.objects.create(
        **{"kind": "dead_letters", "severity": "warning", "subject": "growth", "message": "they come fast", **fields}
    )


def page(client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def test_an_empty_list_says_what_would_appear():
    assert "No alerts." in page(signed_in("viewer"), ALERTS)


def test_the_list_is_narrowed_by_state_severity_kind_and_service():
    limit = Limit.objects.create(name="sheets-writes", service="google-sheets", capacity=10)
    make_alert(message="of no limit")
    make_alert(message="seen", subject="b", acknowledged_at=timezone.now(), acknowledged_by="user:1")
    make_alert(message="over", subject="c", resolved_at=timezone.now())
    make_alert(message="of a limit", kind="exceeded", severity="critical", limit=limit, subject=f"{limit.pk:08d}:*")
    client = signed_in("viewer")
    for query, shown in {
        "": {"of no limit", "seen", "over", "of a limit"},
        "?state=open": {"of no limit", "of a limit"},
        "?state=acknowledged": {"seen"},
        "?state=resolved": {"over"},
        "?severity=critical": {"of a limit"},
        "?kind=exceeded": {"of a limit"},
        "?service=google-sheets": {"of a limit"},
        "?state=nonsense&before=x": {"of no limit", "seen", "over", "of a limit"},
    }.items():
        text = page(client, ALERTS + query)
        found = {message for message in ("of no limit", "seen", "over", "of a limit") if f">{message}<" in text}
        assert found == shown, query


def test_the_list_of_a_project_has_the_alerts_about_it_and_no_others():
    limit = Limit.objects.create(name="sheets-writes", service="google-sheets", capacity=10)

    def of_counter(key: str, message: str) -> None:
        make_alert(message=message, kind="exceeded", limit=limit, subject=counter_id(limit.pk, key))

    of_counter("project:a.b", "its cap")
    of_counter("project:a.b/user:u/model:m", "its user's cap")
    of_counter("*", "everyone's cap")
    of_counter("project:a.bc", "a longer name")
    of_counter("project:axb", "a name that a dot would stand for")
    of_counter("user:1:project:a.b/x", "a user of its name")
    make_alert(message="its ready work", kind="oldest_ready", subject="a.b")
    make_alert(message="its letters", figures={"projects": ["a.b", "other"]})
    month = "2026-01/a.b/u"
    make_alert(message="its user's quota", kind="allowance", subject=month, figures={"project": "a.b"})
    make_alert(message="another's letters", subject="x", figures={"projects": ["a.bc"]})
    found = list(QuotaAlert.objects.filter(QuotaAlert.about("a.b")))
    assert found == [one for one in QuotaAlert.objects.all() if "a.b" in one.projects]
    assert len(found) == 5
    text = page(signed_in("viewer"), f"{ALERTS}?project=a.b")
    shown = [one.message for one in QuotaAlert.objects.all() if f">{escape(one.message)}<" in text]
    assert shown == [one.message for one in found]


def test_the_list_goes_by_pages_and_counts_nothing():
    QuotaAlert.objects.bulk_create(
        QuotaAlert(kind="usage", severity="notice", subject=str(n), message=f"alert no {n}.") for n in range(120)
    )
    client = signed_in("viewer")
    with CaptureQueriesContext(connection) as queries:
        first = page(client, ALERTS)
    assert not [one for one in queries if "COUNT(" in one["sql"].upper() and "quotaalert" in one["sql"]]
    [rows] = [one["sql"] for one in queries if 'FROM "ratelimits_quotaalert"' in one["sql"]]
    assert rows.endswith("LIMIT 51")
    assert "alert no 119." in first
    assert "alert no 69." not in first
    oldest = QuotaAlert.objects.get(message="alert no 70.").pk
    second = page(client, f"{ALERTS}?before={oldest}")
    assert "alert no 69." in second
    assert "alert no 70." not in second


def test_an_alerts_page_shows_its_limit_its_figures_and_its_runbook():
    limit = Limit.objects.create(name="sheets-writes", service="google-sheets", capacity=10)
    tell_exceeded(catalogue.rule_of(limit), "project:acme", message=HOSTILE, figures={"status": 429, "x": HOSTILE})
    alert = QuotaAlert.objects.get()
    text = page(signed_in("viewer"), f"{ALERTS}{alert.pk}/change/")
    assert "project:acme" in text
    assert "Runbook: The provider refused, or the cap was passed" in text
    assert "lower the concurrency" in text
    assert HOSTILE not in text


def test_an_alert_leads_to_what_it_is_about():
    project = make_project("acme")
    budget = Budget.objects.create(project=project, name="pilot", amount=100)
    period = BudgetPeriod.objects.create(budget=budget, project=project, starts_at=timezone.now())
    pool = CredentialPool.objects.create(name="openai-keys", service="openai")
    refused = uuid4()
    about = {
        reverse("admin:ratelimits_budget_change", args=[budget.pk]): make_alert(
            kind="budget", subject=f"acme/budget/{period.pk}"
        ),
        reverse("admin:tenancy_credentialpool_change", args=[pool.pk]): make_alert(
            kind="credential_refused", subject="key-1", figures={"pools": ["openai-keys"], "jobs": [str(refused)]}
        ),
        "/admin/ratelimits/price/?q=large-1": make_alert(
            kind="missing_price", subject="openai/large-1/live", figures={"model": "large-1"}
        ),
    }
    client = signed_in("viewer")
    for address, alert in about.items():
        assert f'href="{address}"' in page(client, f"{ALERTS}{alert.pk}/change/")
    alert = QuotaAlert.objects.get(kind="credential_refused")
    assert reverse("admin:jobs_job_change", args=[refused]) in page(client, f"{ALERTS}{alert.pk}/change/")
    BudgetPeriod.objects.all().delete()
    alert = QuotaAlert.objects.get(kind="budget")
    assert alert.subject in page(client, f"{ALERTS}{alert.pk}/change/")


def test_a_saturated_alert_says_when_it_clears():
    limit = Limit.objects.create(name="sheets-writes", service="google-sheets", capacity=10)
    now = timezone.now().timestamp()
    note_saturated(catalogue.rule_of(limit), "*", waiting=7, clears_at=now + 600, now=now)
    assert "Clears (forecast)" in page(signed_in("viewer"), f"{ALERTS}{QuotaAlert.objects.get().pk}/change/")


@every_case("kind", QuotaAlert.Kind.values, undone=True)
def test_every_kinds_runbook_is_a_page(kind):
    text = page(signed_in("viewer"), reverse("admin:ratelimits_quotaalert_runbook", args=[kind]))
    assert "What to do" in text
    shown = text.split("qo-runbook")[-1].split("</section>")[0]
    assert "`" not in shown
    assert "*" not in re.sub("<code.*?</code>", "", shown)


def test_a_runbook_begins_with_what_the_alert_means_and_numbers_what_to_do():
    text = page(signed_in("viewer"), reverse("admin:ratelimits_quotaalert_runbook", args=["exceeded"]))
    assert "<p>The provider answered that its quota is used up although the limit had room" in text
    assert "<ol><li>The provider stated another cap: accept the proposal on the page of the key.</li>" in text
    assert '<code class="qo-code">POST /api/v1/ratelimits/decide</code>' in text


def test_a_runbook_is_closed_to_those_who_may_not_see_alerts_and_unknown_ones_are_not_found():
    address = f"{ALERTS}runbook/usage/"
    assert signed_in(None).get(address).status_code == 403
    assert signed_in("viewer").get(f"{ALERTS}runbook/nonsense/").status_code == 404


@pytest.mark.parametrize("role", [None, "viewer", "operator", "superuser"])
def test_acknowledging_asks_first_and_needs_its_permission(role):
    alert = make_alert()
    over = make_alert(subject="size", resolved_at=timezone.now())
    client = signed_in(role)
    chosen = {"action": "acknowledge_selected", "_selected_action": [str(alert.pk), str(over.pk)]}
    asked = client.post(ALERTS, chosen)
    alert.refresh_from_db()
    assert alert.acknowledged_at is None
    client.post(ALERTS, {**chosen, "confirmed": "yes"})
    alert.refresh_from_db()
    if role in ("operator", "superuser"):
        assert "1 left alone (acknowledged or resolved before)." in asked.content.decode()
        assert alert.acknowledged_by.startswith("user:")
        assert AuditEntry.objects.filter(action="acknowledge_alert", target=f"alert {alert.pk}").count() == 1
    else:
        assert alert.acknowledged_at is None


def test_the_page_offers_to_acknowledge_what_is_open_alone():
    client = signed_in("operator")
    alert = make_alert()
    button = f"{ALERTS}{alert.pk}/acknowledge"
    assert button in page(client, f"{ALERTS}{alert.pk}/change/")
    assert client.post(f"{button}/", {"confirmed": "yes"}).status_code == 302
    assert button not in page(client, f"{ALERTS}{alert.pk}/change/")


FORM = {"name": "pager", "channel": "webhook", "target": "https://pager.example.org/", "least_severity": "warning"}


def test_a_webhooks_secret_is_shown_once_and_never_audited():
    client = signed_in("administrator")
    added = client.post(f"{ROUTES}add/", {**FORM, "enabled": "on"})
    route = AlertRoute.objects.get()
    secret = open_signing_secret(route)
    assert secret.startswith("whsec_")
    assert secret in added.content.decode()
    assert "no-store" in added["Cache-Control"]
    assert secret not in page(client, f"{ROUTES}{route.pk}/change/")
    assert secret not in page(client, ROUTES)
    assert secret not in str(list(AuditEntry.objects.values()))
    assert AuditEntry.objects.filter(action="add_alertroute").exists()


def test_an_email_route_is_refused_until_a_mail_server_is_configured(settings):
    client = signed_in("administrator")
    form = {**FORM, "channel": "email", "target": "oncall@example.org"}
    assert "set QUEUEOPS_EMAIL_URL" in client.post(f"{ROUTES}add/", form).content.decode()
    assert not AlertRoute.objects.exists()
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, email_url="smtp://127.0.0.1:9")
    assert client.post(f"{ROUTES}add/", form).status_code == 302
    assert AlertRoute.objects.get().secret is None


@pytest.mark.parametrize(
    ("channel", "target"),
    [
        ("email", "no address"),
        ("webhook", "ftp://example.org"),
        ("webhook", "javascript:alert(1)"),
        ("webhook", "x"),
        ("slack", "#alerts"),
        ("teams", "ftp://example.org"),
        ("pagerduty", "https://events.pagerduty.com"),
        ("pagerduty", "0123456789abcdef0123456789abcde"),
        ("carrier pigeon", "home"),
    ],
)
def test_a_target_must_fit_its_channel(settings, channel, target):
    settings.QUEUEOPS = replace(django_settings.QUEUEOPS, email_url="smtp://127.0.0.1:9")
    response = signed_in("administrator").post(f"{ROUTES}add/", {**FORM, "channel": channel, "target": target})
    assert response.status_code == 200
    assert not AlertRoute.objects.exists()


@pytest.mark.parametrize(
    ("channel", "target", "shown"),
    [
        ("slack", "https://hooks.slack.com/services/T0/B0/secretabcd", "hooks.slack.com/…abcd"),
        ("teams", "https://user:word@example.org/workflows/secretabcd", "example.org/…abcd"),
        ("pagerduty", "0123456789abcdef0123456789abcdef", "…cdef"),
    ],
)
def test_an_address_that_lets_everybody_post_is_kept_encrypted_and_never_shown(channel, target, shown):
    make_project("acme")
    client = signed_in("administrator")
    given = {**FORM, "channel": channel, "project": "acme", "kinds": ["outage", "failing"], "enabled": "on"}
    assert client.post(f"{ROUTES}add/", {**given, "target": target}).status_code == 302
    route = AlertRoute.objects.get()
    assert (route.target, open_signing_secret(route)) == (shown, target)
    assert (route.project, route.kinds) == ("acme", ["outage", "failing"])
    # As it is shown it stays; another takes its place.
    change = f"{ROUTES}{route.pk}/change/"
    client.post(change, {**given, "target": shown, "least_severity": "critical", "kinds": []})
    route.refresh_from_db()
    assert (route.least_severity, route.kinds, open_signing_secret(route)) == ("critical", [], target)
    replaced = target[:-4] + "9999"
    client.post(change, {**given, "target": replaced})
    route.refresh_from_db()
    assert open_signing_secret(route) == replaced
    for text in (page(client, ROUTES), page(client, change), str(list(AuditEntry.objects.values()))):
        assert target not in text
        assert replaced not in text


@pytest.mark.parametrize("wrong", [{"project": "No Project"}, {"project": "nobody"}, {"kinds": ["nonsense"]}])
def test_a_route_of_what_there_is_not_is_refused(wrong):
    response = signed_in("administrator").post(f"{ROUTES}add/", {**FORM, **wrong})
    assert response.status_code == 200
    assert not AlertRoute.objects.exists()


@pytest.mark.parametrize("role", ["viewer", "operator", "administrator"])
def test_a_test_alert_is_a_job_and_needs_the_permission(role):
    route = make_route()
    response = signed_in(role).post(f"{ROUTES}{route.pk}/test/", {"confirmed": "yes"})
    if role == "administrator":
        assert response.status_code == 302
        assert Job.objects.get().payload["event"] == "test"
        assert AuditEntry.objects.filter(action="test_alert_route").exists()
    else:
        assert response.status_code == 403
        assert not Job.objects.exists()


def test_a_webhooks_secret_is_changed_in_place_and_shown_once():
    route = make_route()
    before, address = open_signing_secret(route), f"{ROUTES}{route.pk}/change-secret/"
    assert signed_in("operator").post(address, {"confirmed": "yes"}).status_code == 403
    client = signed_in("administrator")
    assert address in page(client, f"{ROUTES}{route.pk}/change/")
    assert "The receiver refuses them until it has it" in page(client, address)
    route.refresh_from_db()
    assert open_signing_secret(route) == before, "a GET changes nothing"
    shown = client.post(address, {"confirmed": "yes", "reason": "it leaked"})
    route.refresh_from_db()
    assert open_signing_secret(route) != before
    assert open_signing_secret(route) in shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    entry = AuditEntry.objects.get(action="change_alert_route_secret")
    assert (entry.target, entry.reason) == (f"alert route {route.pk}", "it leaked")
    assert "whsec" not in str(entry.__dict__)
    mail = make_route(secret="", name="mail", channel="email", target="a@example.org")
    assert "change-secret" not in page(client, f"{ROUTES}{mail.pk}/change/")
    assert client.post(f"{ROUTES}{mail.pk}/change-secret/", {"confirmed": "yes"}).status_code == 404


def test_an_alert_that_worsens_wants_to_be_acknowledged_again():
    open_alert("dead_letters", "growth", severity="notice", message="few", figures={})
    QuotaAlert.objects.update(acknowledged_at=timezone.now(), acknowledged_by="user:1")
    open_alert("dead_letters", "growth", severity="warning", message="many", figures={})
    assert ">many<" in page(signed_in("viewer"), f"{ALERTS}?state=open")


@every_case(
    ("kind", "subject", "figures", "leads_to"),
    [
        ("dead_letters", "cause:ab/acme", {"projects": ["acme"]}, "jobs/deadletter/?project=acme&amp;fingerprint=ab"),
        ("dead_letters", "size:acme", {"projects": ["acme"]}, "jobs/deadletter/?project=acme"),
        ("outage", "http://down.example", {"projects": ["acme"]}, "jobs/servicebreaker/"),
        ("oldest_ready", "acme", {}, "jobs/job/?project=acme&amp;state=queued"),
        ("failing", "openai", {}, "jobs/job/?service=openai"),
        ("no_executor", "*", {}, "jobs/executor/"),
        ("schedule", "{row}", {}, "jobs/schedule/{row}/change/"),
        ("guard", "batch/{row}", {"batch": "{row}"}, "jobs/batch/{row}/change/"),
    ],
    undone=True,
)
def test_an_alert_leads_to_the_work_that_it_is_about(kind, subject, figures, leads_to):
    row = str(uuid4())
    named = {name: row if value == "{row}" else value for name, value in figures.items()}
    alert = make_alert(kind=kind, subject=subject.format(row=row), figures=named)
    shown = page(signed_in("viewer"), f"{ALERTS}{alert.pk}/change/")
    assert f'href="/admin/{leads_to.format(row=row)}"' in shown
