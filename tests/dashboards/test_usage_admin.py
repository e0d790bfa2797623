"""Allowances and usage in the admin: who may do what, and what it does."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.urls import reverse
from django.utils import timezone

from queueops.audit.models import AuditEntry
from ratelimits.models import Allowance, AllowanceOverride, QuotaAlert, UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage import allowance_alerts, allowances, reserve
from ratelimits.usage.admin import correction as usage_correction
from ratelimits.usage.admin import export as usage_export
from ratelimits.usage.reports import months_until
from tests.factories import (
    make_allowance,
    make_project,
    make_reservation,
    make_usage_event,
    make_usage_month,
)
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

USAGE = "/admin/ratelimits/usagetracking/"
RESERVATIONS = "/admin/ratelimits/usagereservation/"
EVENTS = "/admin/ratelimits/usageevent/"
ALLOWANCES = "/admin/ratelimits/allowance/"
QUOTAS = "/admin/ratelimits/allowanceoverride/"
FORM = {
    "project": "acme",
    "unit": "tokens",
    "quota": "1000",
    "policy": "strict",
    "time_zone": "Europe/Vienna",
    "reservation_seconds": "300",
    "_save": "Save",
}


def this_month() -> str:
    """Asked for in each test: a run may begin in another."""
    return f"{timezone.now():%Y-%m}"


def month_before() -> str:
    return months_until(this_month(), 2)[0]


@pytest.fixture
def user() -> UUID:
    return uuid4()


def page(row: UsageTracking) -> str:
    return reverse("admin:ratelimits_usagetracking_change", args=[row.pk])


def action(row: Any, name: str) -> str:
    return reverse(f"admin:ratelimits_{row._meta.model_name}_{name}", args=[row.pk])


def rows_of(response: Any) -> list[Any]:
    return [row.pk for row in response.context["cl"].result_list]


def said(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def faults(response: Any) -> dict[str, list[str]]:
    form = response.context["adminform"].form if "adminform" in response.context else response.context["form"]
    return dict(form.errors)


# Allowances


def test_an_allowance_is_set_with_a_reason_and_audited():
    make_project("acme")
    client = signed_in("limits manager")
    assert client.post(f"{ALLOWANCES}add/", {**FORM, "reason": "the plan they bought"}).status_code == 302
    allowance = Allowance.objects.get()
    assert (allowance.pk, allowance.unit, allowance.quota, allowance.time_zone) == (
        "acme",
        "tokens",
        1000,
        "Europe/Vienna",
    )
    entry = AuditEntry.objects.get(action="set_allowance")
    assert (entry.project_id, entry.reason, (entry.after or {})["quota"]) == ("acme", "the plan they bought", 1000)
    assert entry.actor.startswith("user:")


@every_case(("field", "value"), [
    ("quota", "-1"), ("quota", "9" * 30), ("quota", "many"), ("unit", "calls"), ("policy", "lax"),
    ("time_zone", "Vienna"), ("reservation_seconds", "0"), ("reservation_seconds", "86401"), ("project", "nobody"),
])  # fmt: skip
def test_what_cannot_be_is_said_at_its_field(field, value):
    make_project("acme")
    response = signed_in("limits manager").post(f"{ALLOWANCES}add/", {**FORM, field: value})
    assert response.status_code == 200
    assert list(faults(response)) == [field]
    assert not Allowance.objects.exists()


def test_another_quota_reaches_the_current_month_and_is_told():
    make_allowance(unit="tokens", time_zone="Europe/Vienna")
    row = make_usage_month(uuid4(), month=f"{timezone.now().astimezone(ZoneInfo('Europe/Vienna')):%Y-%m}")
    response = signed_in("limits manager").post(f"{ALLOWANCES}acme/change/", {**FORM, "quota": "500"}, follow=True)
    row.refresh_from_db()
    assert row.quota == 500
    assert any("1 month of a user has another quota now" in one for one in said(response))


@every_case(("changes", "words"), [
    ({"unit": "requests"}, "the same numbers are requests"),
    ({"quota": "100"}, "1 of the users without a quota of their own"),
    ({"time_zone": "Asia/Tokyo"}, "Months begin at another instant"),
    ({"policy": "record_overage"}, "nothing stops it"),
], undone=True)  # fmt: skip
def test_a_change_that_bites_is_saved_only_once_it_was_read(user, changes, words):
    make_allowance(unit="tokens", time_zone="Europe/Vienna")
    make_usage_month(user, used=150)
    client = signed_in("limits manager")
    before = Allowance.objects.values().get()
    response = client.post(f"{ALLOWANCES}acme/change/", {**FORM, **changes})
    assert words in response.content.decode()
    assert 'name="confirmed"' in response.content.decode()
    assert Allowance.objects.values().get() == before
    assert client.post(f"{ALLOWANCES}acme/change/", {**FORM, **changes, "confirmed": "on"}).status_code == 302
    assert Allowance.objects.values().get() != before


def test_another_unit_bites_only_where_something_was_counted():
    make_allowance(unit="tokens", time_zone="Europe/Vienna")
    client = signed_in("limits manager")
    assert client.post(f"{ALLOWANCES}acme/change/", {**FORM, "unit": "requests"}).status_code == 302


def test_two_who_edit_the_same_allowance_do_not_overwrite_each_other():
    make_allowance(unit="tokens", time_zone="Europe/Vienna")
    client = signed_in("limits manager")
    seen = client.get(f"{ALLOWANCES}acme/change/").context["adminform"].form["seen_at"].value()
    Allowance.objects.update(quota=7, updated_at=timezone.now() + timedelta(seconds=1))
    response = client.post(f"{ALLOWANCES}acme/change/", {**FORM, "seen_at": seen})
    assert "Somebody else has changed this allowance" in response.content.decode()
    assert Allowance.objects.get().quota == 7


def test_the_list_counts_the_users_of_the_month_and_those_near_and_over():
    make_allowance(quota=100)
    make_allowance("globex", unit="tokens", quota=5)
    for used in (10, 80, 100, 101):
        make_usage_month(uuid4(), used=used)
    make_usage_month(uuid4(), month=month_before(), used=500)
    response = signed_in("viewer").get(ALLOWANCES)
    counted = {row.pk: row.counted for row in response.context["cl"].result_list}
    assert (counted["acme"].users, counted["acme"].near, counted["acme"].over) == (4, 2, 1)
    assert (counted["globex"].users, counted["globex"].near, counted["globex"].over) == (0, 0, 0)
    assert "5 tokens" in response.content.decode()
    near = f"{USAGE}?project=acme&amp;month={this_month()}&amp;level=near"
    assert near in response.content.decode()


def test_allowances_are_found_by_their_project():
    make_allowance()
    make_allowance("globex")
    client = signed_in("viewer")
    assert rows_of(client.get(f"{ALLOWANCES}?q=glob")) == ["globex"]


def test_overrides_are_found_by_their_user_and_narrowed_by_project(user):
    for project in ("acme", "globex"):
        make_allowance(project)
        AllowanceOverride.objects.create(project_id=project, user_id=user, quota=1)
    AllowanceOverride.objects.create(project_id="acme", user_id=uuid4(), quota=1)
    client = signed_in("viewer")
    assert len(rows_of(client.get(QUOTAS))) == 3
    assert len(rows_of(client.get(f"{QUOTAS}?q={user}"))) == 2
    assert len(rows_of(client.get(f"{QUOTAS}?q={user}&project=globex"))) == 1
    assert rows_of(client.get(f"{QUOTAS}?q=x")) == []


# Quotas of users


def test_a_users_quota_is_set_from_the_page_of_a_month_and_taken_back(user):
    make_allowance(quota=100)
    row = make_usage_month(user)
    client = signed_in("limits manager")
    assert "Back to everybody" not in client.get(page(row)).content.decode()
    form = {"confirmed": "yes", "quota": "250", "note": "a beta tester", "reason": "asked for it"}
    response = client.post(action(row, "set_quota"), form, follow=True)
    assert "The user's quota is 250 a month now." in said(response)
    row.refresh_from_db()
    assert (row.quota, AllowanceOverride.objects.get().note) == (250, "a beta tester")
    assert "Back to everybody" in response.content.decode()
    assert "others have 100" in response.content.decode()
    client.post(action(row, "remove_quota"), {"confirmed": "yes", "reason": "the beta is over"})
    row.refresh_from_db()
    assert (row.quota, AllowanceOverride.objects.count()) == (100, 0)
    reasons = AuditEntry.objects.filter(target="allowance acme").values_list("reason", flat=True)
    assert list(reasons.order_by("pk")) == ["asked for it", "the beta is over"]


def test_a_users_quota_is_added_changed_and_removed_in_its_own_list(user):
    make_allowance(quota=100)
    client = signed_in("limits manager")
    form = {"project": "acme", "user_id": str(user), "quota": "7", "note": "<b>", "_save": "Save"}
    assert client.post(f"{QUOTAS}add/", form).status_code == 302
    override = AllowanceOverride.objects.get()
    assert "already exists" in str(faults(client.post(f"{QUOTAS}add/", form)))
    assert client.post(f"{QUOTAS}{override.pk}/change/", {**form, "quota": "9", "reason": "more"}).status_code == 302
    override.refresh_from_db()
    assert (override.user_id, override.quota) == (user, 9)
    response = client.post(action(override, "remove"), {"confirmed": "yes", "reason": "over"}, follow=True)
    assert "1 removed, 0 left alone." in said(response)
    assert not AllowanceOverride.objects.exists()


def test_what_somebody_else_changed_after_the_form_was_found_sound_is_told_on_the_form(user, monkeypatch):
    make_allowance(quota=100)
    set_override = allowances.set_override

    def too_late(*args: Any, **options: Any) -> None:
        Allowance.objects.all().delete()  # by somebody else, between the check and the change
        set_override(*args, **options)

    monkeypatch.setattr(allowances, "set_override", too_late)
    form = {"project": "acme", "user_id": str(user), "quota": "7", "note": "", "_save": "Save"}
    response = signed_in("limits manager").post(f"{QUOTAS}add/", form, follow=True)
    assert (response.status_code, response.redirect_chain) == (200, [(f"{QUOTAS}add/", 302)])
    assert "no allowance" in str(said(response))
    assert not AllowanceOverride.objects.exists()


@every_case("form", [{"quota": "-1"}, {"quota": ""}, {"quota": "9" * 30}, {"note": "x" * 3000}], undone=True)
def test_a_quota_that_cannot_be_is_refused_at_its_field(user, form):
    row = make_usage_month(user)
    given = {"confirmed": "yes", "quota": "5", "note": "", **form}
    response = signed_in("limits manager").post(action(row, "set_quota"), given)
    assert list(faults(response)) == list(form)
    assert not AllowanceOverride.objects.exists()


# The list of usage


def test_the_list_shows_this_month_and_narrows_by_month_project_and_level(user):
    make_allowance(quota=100)
    make_allowance("globex", quota=100)
    low = make_usage_month(uuid4(), used=79)
    near = make_usage_month(uuid4(), used=80)
    full = make_usage_month(uuid4(), used=100)
    over = make_usage_month(user, used=101)
    other = make_usage_month(user, project="globex", used=5)
    old = make_usage_month(user, month=month_before(), used=5)
    client = signed_in("viewer")

    def found(query: str) -> set[int]:
        return set(rows_of(client.get(f"{USAGE}?{query}")))

    this_month = {low.pk, near.pk, full.pk, over.pk, other.pk}
    assert found("") == this_month
    assert found(f"month={month_before()}") == {old.pk}
    assert found("month=any") == {*this_month, old.pk}
    assert found("month=nonsense") == this_month
    assert found("project=globex") == {other.pk}
    assert found("level=near") == {near.pk, full.pk}
    assert found("level=over") == {over.pk}
    assert found("level=over&project=globex") == set()
    assert found(f"month={month_before()}&project=acme&level=near") == set()
    assert found(f"q={user}") == {over.pk, other.pk, old.pk}
    assert found(f"q={user}&project=globex") == {other.pk}
    assert found("q=nobody") == set()
    assert found("q=\0") != set()  # as if nothing had been typed


def test_the_list_tells_used_reserved_remaining_and_overage_in_the_unit(user):
    make_allowance(quota=2_000, unit="tokens")
    make_usage_month(user, used=1_500, reserved=300)
    make_usage_month(uuid4(), used=2_345)
    text = signed_in("viewer").get(USAGE).content.decode()
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    for words in ("1,500 of 2,000 tokens 75 %", "200 tokens", "300 reserved", "over by 345 tokens", "117 %"):
        assert words in plain, words
    assert 'aria-valuetext="1,500 tokens used, 300 reserved, of 2,000"' in text


def test_pages_follow_each_other_and_miss_nothing():
    make_allowance()
    rows = [make_usage_month(uuid4()).pk for _ in range(120)]
    client = signed_in("viewer")
    seen: list[int] = []
    address: str | None = USAGE
    while address:
        response = client.get(address)
        seen += rows_of(response)
        link = response.context["cl"].older_link
        address = f"{USAGE}{link}" if link else None
    assert seen == rows[::-1]


def test_a_csv_has_what_the_list_means_and_the_audit_trail_tells_of_it(user, monkeypatch):
    monkeypatch.setattr(usage_export, "ROWS_AT_ONCE", 2)
    make_allowance(quota=100, unit="tokens")
    for used in (10, 90, 120):
        make_usage_month(user if used == 120 else uuid4(), used=used)
    make_usage_month(user, month=month_before(), used=1)
    client = signed_in("limits manager")
    text = b"".join(client.get(f"{USAGE}export.csv")).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["used"] for row in rows] == ["10", "90", "120"]
    assert rows[2] == {
        "project": "acme", "user_id": str(user), "month": this_month(), "unit": "tokens", "quota": "100", "used": "120",
        "reserved": "0", "remaining": "0", "overage": "20",
    }  # fmt: skip
    assert len(b"".join(client.get(f"{USAGE}export.csv?level=over")).decode().splitlines()) == 2
    assert AuditEntry.objects.filter(action="export_usage").count() == 2
    assert signed_in("viewer").get(f"{USAGE}export.csv").status_code == 403


# One user's month


def test_the_page_of_a_month_draws_its_months_and_days_and_marks_what_passed_the_limit(user):
    make_allowance(quota=100, unit="tokens")
    make_usage_month(user, month=month_before(), used=130)
    today = timezone.now()
    make_usage_event(user, amount=60, tokens=60, service="gemini", occurred_at=today)
    make_usage_event(user, amount=50, tokens=50, over_limit=True, occurred_at=today)
    make_usage_event(user, amount=-10, correction=True)
    row = UsageTracking.objects.get(user_id=user, month_year=this_month())
    response = signed_in("viewer").get(page(row))
    months = response.context["months"]["bars"]
    assert [bar["title"] for bar in months[-2:]] == [
        f"{month_before()}: 130 of 100 tokens",
        f"{this_month()}: 100 of 100 tokens",
    ]
    assert [part["fill"] for part in months[-2]["parts"]] == ["blue", "red"]
    assert months[0]["parts"] == []
    [day] = [bar for bar in response.context["days"]["bars"] if bar["parts"]]
    assert day["title"] == f"{today:%Y-%m-%d}: 110 tokens in 2 events, 50 of them beyond the quota"
    assert "Corrections, -10 in all" in response.context["days_note"]
    text = response.content.decode()
    assert "over the limit" in text
    assert "correction" in text
    assert "-10 tokens" in text


def test_an_event_that_came_after_the_month_of_its_reservation_is_told_with_the_last_day(user):
    make_allowance()
    make_usage_event(user, month_year=month_before(), occurred_at=timezone.now().replace(day=2))
    row = UsageTracking.objects.get(user_id=user)
    bars = signed_in("viewer").get(page(row)).context["days"]["bars"]
    assert [place for place, bar in enumerate(bars) if bar["parts"]] == [len(bars) - 1]


def test_the_page_of_a_month_shows_its_reservations_its_alerts_and_what_people_changed(user):
    make_allowance(quota=100)
    make_usage_month(user, used=85)
    held = reserve.reserve(project_id="acme", user_id=user, amount=5)
    make_reservation(uuid4(), amount=3)
    allowance_alerts.tend_allowance_alerts()
    row = UsageTracking.objects.get(user_id=user)
    client = signed_in("administrator")
    client.post(action(row, "correct"), {"amount": "-5", "reason": "counted twice", "seen": "-5"})
    response = client.get(page(row))
    [reservation] = response.context["reservations"]
    assert str(held.reservation_id) in reservation["cancel"]
    assert reservation["amount"] == "5 requests"
    [alert] = response.context["alerts"]
    assert "85 of 100 requests" in alert["message"]
    told = response.content.decode().partition("What people changed")[2]
    assert "correct usage" in told
    assert "counted twice" in told
    assert signed_in("viewer").get(page(row)).context["reservations"][0]["cancel"] == ""


def test_a_month_whose_time_zone_is_not_known_here_is_shown_in_utc_and_says_so(user):
    row = make_usage_month(user)
    Allowance.objects.update(time_zone="Mars/Olympus")
    shown = signed_in("administrator").get(page(row))
    assert shown.status_code == 200
    assert (
        "in UTC: this host does not know the time zone Mars/Olympus. Give the allowance another"
        in shown.content.decode()
    )


def test_a_month_whose_allowance_is_gone_is_still_shown(user):
    make_allowance()
    make_usage_event(user)
    Allowance.objects.all().delete()
    row = UsageTracking.objects.get()
    client = signed_in("viewer")
    assert "1 of 1,000 units" in re.sub(r"<[^>]+>", "", client.get(page(row)).content.decode())
    assert client.get(USAGE).status_code == 200


@every_case("key", ["0", "1" * 30, "x", "-1"])
def test_a_month_that_is_not_there_leads_back_to_the_list(key):
    response = signed_in("superuser").get(f"{USAGE}{key}/change/")
    assert response.status_code == 302
    for name in ("correct", "set_quota"):
        address = reverse(f"admin:ratelimits_usagetracking_{name}", args=[key])
        assert signed_in("superuser").get(address).status_code == 404


def test_alerts_of_allowances_lead_to_the_users_month_and_are_counted_apart_on_the_first_page(user):
    make_allowance(quota=100)
    make_usage_month(user, used=100)
    allowance_alerts.tend_allowance_alerts()
    row, alert = UsageTracking.objects.get(), QuotaAlert.objects.get()
    client = signed_in("viewer")
    assert page(row) in client.get(f"/admin/ratelimits/quotaalert/{alert.pk}/change/").content.decode()
    overview = client.get("/admin/")
    assert (overview.context["alerts"], overview.context["critical"], overview.context["of_users"]) == (0, 0, "1")
    assert "100 requests" not in overview.context["findings"][0]["text"]
    UsageTracking.objects.all().delete()
    assert client.get(f"/admin/ratelimits/quotaalert/{alert.pk}/change/").status_code == 200


# Corrections


def test_a_correction_is_shown_first_then_done_and_audited(user):
    make_allowance(quota=100)
    make_usage_event(user, amount=80)
    row = UsageTracking.objects.get()
    client = signed_in("administrator")
    form = {"amount": "-30", "reason": "a bug of the app"}
    first = client.post(action(row, "correct"), form)
    assert "Used: 80 requests before, 50 requests afterwards." in first.content.decode()
    assert "Remaining of 100: 20 before, 50 afterwards." in first.content.decode()
    assert UsageTracking.objects.get().used == 80
    done = client.post(action(row, "correct"), {**form, "seen": "-30"}, follow=True)
    assert "Corrected by -30: 50 requests used." in said(done)
    assert UsageTracking.objects.get().used == 50
    event = UsageEvent.objects.get(correction=True)
    assert (event.amount, event.user_id) == (-30, user)
    entry = AuditEntry.objects.get(action="correct_usage")
    assert (entry.reason, entry.before, (entry.after or {})["used"]) == ("a bug of the app", {"used": 80}, 50)


def test_another_amount_than_was_shown_is_shown_before_it_is_done(user):
    make_usage_event(user, amount=80)
    row = UsageTracking.objects.get()
    form = {"amount": "-50", "reason": "x", "seen": "-5"}
    response = signed_in("administrator").post(action(row, "correct"), form)
    assert "30 requests afterwards" in response.content.decode()
    assert UsageTracking.objects.get().used == 80


@every_case("amount", ["0", "-81", "many", "", "9" * 30, "1.5"], undone=True)
def test_a_correction_that_cannot_be_is_refused_at_its_field(user, amount):
    make_usage_event(user, amount=80)
    row = UsageTracking.objects.get()
    form = {"amount": amount, "reason": "x", "seen": amount}
    response = signed_in("administrator").post(action(row, "correct"), form)
    assert list(faults(response)) == ["amount"]
    assert not UsageEvent.objects.filter(correction=True).exists()


def test_what_the_service_refuses_is_said_at_its_field(user, monkeypatch):
    make_usage_event(user, amount=80)
    row = UsageTracking.objects.get()
    # As if somebody else had taken them back after the form had found them there.
    monkeypatch.setattr(usage_correction.CorrectionForm, "clean_amount", lambda form: form.cleaned_data["amount"])
    response = signed_in("administrator").post(action(row, "correct"), {"amount": "-90", "reason": "x", "seen": "-90"})
    assert faults(response)["amount"] == ["Only 80 was used."]
    Allowance.objects.all().delete()
    response = signed_in("administrator").post(action(row, "correct"), {"amount": "5", "reason": "x", "seen": "5"})
    assert "no allowance" in str(faults(response)["__all__"])


def test_a_correction_wants_a_reason(user):
    make_usage_event(user, amount=80)
    row = UsageTracking.objects.get()
    response = signed_in("administrator").post(action(row, "correct"), {"amount": "1", "reason": " ", "seen": "1"})
    assert list(faults(response)) == ["reason"]


@pytest.mark.parametrize("role", [None, "viewer", "operator", "limits manager"])
def test_only_administrators_correct_check_and_repair(user, role):
    make_usage_event(user, amount=80)
    row = UsageTracking.objects.get()
    client = signed_in(role)
    for address in (action(row, "correct"), f"{ALLOWANCES}check-ledger/", f"{ALLOWANCES}repair-ledger/"):
        assert client.get(address).status_code == 403
        assert client.post(address, {"amount": "1", "reason": "x", "seen": "1"}).status_code == 403
    assert not UsageEvent.objects.filter(correction=True).exists()


# Reservations and events


def test_reservations_open_with_the_active_ones_the_first_to_expire_first(user):
    now = timezone.now()
    later = make_reservation(user, expires_at=now + timedelta(minutes=9))
    sooner = make_reservation(uuid4(), expires_at=now + timedelta(minutes=1))
    ended = {status: make_reservation(user, status=status).pk for status in ("confirmed", "cancelled", "expired")}
    client = signed_in("viewer")
    assert rows_of(client.get(RESERVATIONS)) == [sooner.pk, later.pk]
    assert rows_of(client.get(f"{RESERVATIONS}?project=globex")) == []
    assert rows_of(client.get(f"{RESERVATIONS}?user_id={user}")) == [later.pk]
    for status, pk in ended.items():
        assert rows_of(client.get(f"{RESERVATIONS}?status={status}")) == [pk]
    assert len(rows_of(client.get(f"{RESERVATIONS}?status=any"))) == 5
    assert rows_of(client.get(f"{RESERVATIONS}?q={ended['expired']}")) == [ended["expired"]]
    assert rows_of(client.get(f"{RESERVATIONS}?q=x")) == []


def test_active_reservations_page_by_their_end_and_miss_none_that_end_together(user):
    end = timezone.now() + timedelta(minutes=3)
    rows = {make_reservation(user, expires_at=end).pk for _ in range(60)}
    rows |= {make_reservation(user, expires_at=end + timedelta(seconds=place)).pk for place in range(60)}
    client = signed_in("viewer")
    seen: list[UUID] = []
    address: str | None = RESERVATIONS
    while address:
        response = client.get(address)
        seen += rows_of(response)
        link = response.context["cl"].older_link
        address = f"{RESERVATIONS}{link}" if link else None
    assert len(seen) == 120
    assert set(seen) == rows
    for wrong in ("after=x", f"after=2026-01-01_{uuid4()}", "after=2026-01-01T00:00:00Z_x"):
        assert len(rows_of(client.get(f"{RESERVATIONS}?{wrong}"))) == 50


def test_cancelling_reports_what_was_released_and_leaves_ended_ones_alone(user):
    make_allowance(quota=100)
    held = make_reservation(user, amount=40)
    ended = make_reservation(user, amount=1, status="expired")
    client = signed_in("operator")
    form = {
        "action": "cancel_selected",
        "_selected_action": [str(held.pk), str(ended.pk)],
        "confirmed": "yes",
        "reason": "the app was stopped",
    }
    response = client.post(f"{RESERVATIONS}?status=any", form, follow=True)
    assert "1 cancelled, 1 left alone: not active any more." in said(response)
    statuses = dict(UsageReservation.objects.values_list("pk", "status"))
    assert statuses == {held.pk: "cancelled", ended.pk: "expired"}
    assert UsageTracking.objects.get().reserved == 0
    entry = AuditEntry.objects.get(action="cancel_reservation")
    assert (entry.target, entry.reason, (entry.before or {})["amount"]) == (
        f"reservation {held.pk}",
        "the app was stopped",
        40,
    )
    assert signed_in("viewer").post(action(held, "cancel"), {"confirmed": "yes", "reason": "x"}).status_code == 403


def test_an_event_is_found_by_its_id_and_tells_of_its_reservation(user):
    make_allowance()
    known = make_reservation(user, status="confirmed")
    event = make_usage_event(user, reservation=known.pk, service="gemini", tokens=12)
    strange = make_usage_event(uuid4(), reservation=uuid4(), over_limit=True)
    fixed = make_usage_event(user, amount=-1, correction=True)
    client = signed_in("viewer")
    assert rows_of(client.get(EVENTS)) == [fixed.pk, strange.pk, event.pk]
    assert rows_of(client.get(f"{EVENTS}?q={event.event_id}")) == [event.pk]
    assert rows_of(client.get(f"{EVENTS}?q=gemini")) == []
    assert rows_of(client.get(f"{EVENTS}?marked=over")) == [strange.pk]
    assert rows_of(client.get(f"{EVENTS}?marked=correction")) == [fixed.pk]
    narrowed = f"{EVENTS}?project=acme&user_id={user}&month={this_month()}"
    assert rows_of(client.get(narrowed)) == [fixed.pk, event.pk]
    assert str(known.pk) in client.get(f"{EVENTS}{event.pk}/change/").content.decode()
    assert "which is not known" in client.get(f"{EVENTS}{strange.pk}/change/").content.decode()


# Top users


def test_who_used_the_most_of_a_project_in_a_month(user, monkeypatch):
    make_allowance(quota=100, unit="tokens")
    make_allowance("globex")
    make_usage_month(uuid4(), used=40)
    make_usage_month(user, used=110)
    make_usage_month(uuid4())
    make_usage_month(uuid4(), project="globex", used=999)
    client = signed_in("viewer")
    response = client.get(f"{USAGE}top/?project=acme")
    assert [one["used"] for one in response.context["users"]] == ["110 of 100 tokens", "40 of 100 tokens"]
    assert "3 users used 150 tokens in all." in response.content.decode()
    assert client.get(f"{USAGE}top/?project=acme&month={month_before()}").context["users"] == []
    assert client.get(f"{USAGE}top/?project=nobody&month=x").status_code == 200
    monkeypatch.setattr("ratelimits.usage.reports.MAX_USERS_READ", 2)
    assert client.get(f"{USAGE}top/?project=acme").context["partial"] is True


def test_without_allowances_the_pages_say_so():
    client = signed_in("viewer")
    assert "No allowances yet." in client.get(f"{USAGE}top/").content.decode()
    assert "No allowances yet." in client.get(ALLOWANCES).content.decode()
    assert "Nothing was used." in client.get(USAGE).content.decode()
    assert "Nothing is reserved." in client.get(RESERVATIONS).content.decode()
    assert "No events yet." in client.get(EVENTS).content.decode()


# The ledger


def test_a_sound_ledger_is_called_so_and_a_look_checks_nothing(user):
    make_usage_event(user)
    client = signed_in("administrator")
    assert "verdict" not in client.get(f"{ALLOWANCES}check-ledger/").context
    response = client.post(f"{ALLOWANCES}check-ledger/", {"project": ""})
    assert "Every month holds its sums" in response.content.decode()
    assert "1 month of all projects compared" in response.content.decode()


def test_what_differs_is_shown_and_repaired_with_a_reason(user):
    make_usage_event(user, amount=30)
    make_reservation(user, amount=4)
    make_usage_event(uuid4(), project="globex")
    UsageTracking.objects.filter(user_id=user).update(used=31, reserved=0)
    client = signed_in("administrator")
    response = client.post(f"{ALLOWANCES}check-ledger/", {"project": "acme"})
    [line] = response.context["differences"]
    assert (line["user"], line["used"], line["events"]) == (user, "31", "30")
    assert (line["reserved"], line["active"]) == ("0", "4")
    assert client.post(f"{ALLOWANCES}check-ledger/", {"project": "globex"}).context["differences"] == []
    repair = response.context["repair_href"]
    assert list(faults(client.post(repair, {"reason": ""}))) == ["reason"]
    assert UsageTracking.objects.get(user_id=user).used == 31
    done = client.post(repair, {"reason": "a row was edited by hand"}, follow=True)
    assert "1 month repaired; each is in the audit trail." in said(done)
    row = UsageTracking.objects.get(user_id=user)
    assert (row.used, row.reserved) == (30, 4)
    entry = AuditEntry.objects.get(action="repair_ledger")
    assert (entry.reason, entry.before) == ("a row was edited by hand", {"used": 31, "reserved": 0})


def test_a_page_shows_a_bounded_number_of_differences(user, monkeypatch):
    monkeypatch.setattr("ratelimits.usage.admin.ledger_check.MAX_DIFFERENCES_SHOWN", 2)
    make_allowance()
    for _ in range(5):
        make_usage_month(uuid4(), used=1)
    response = signed_in("administrator").post(f"{ALLOWANCES}check-ledger/", {"project": ""})
    assert len(response.context["differences"]) == 2
    assert "and 3 more" in response.content.decode()
