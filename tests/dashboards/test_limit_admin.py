"""Limits and counters in the admin: who may do what, and what it does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from dashboards.admin.limit_verbs import ACCEPT, CLEAR, COOL_DOWN
from jobs.lanes import lane_name
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit, LimitOverride
from ratelimits.subjects import Subject
from ratelimits.tuning import limits
from tests.factories import make_jobs
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

WRITE = Subject("sheets", "write", "acme", "u")
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def _no_rules_of_other_tests() -> Any:
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.fixture
def limit() -> Limit:
    given = {"name": "sheets-write", "service": "sheets", "call_type": "write", "capacity": 300}
    return Limit.objects.get(pk=limits.create_limit(given, actor="user:1").limit_id)


@pytest.fixture
def counter(limit: Limit) -> Counter:
    decide([Call(WRITE, kind="sheets.update")] * 5)
    return Counter.objects.get()


def page(limit: Limit) -> str:
    return reverse("admin:ratelimits_limit_change", args=[limit.pk])


def fields_of(client: Client, address: str) -> dict[str, str]:
    """The form as a browser would send it back."""
    form = client.get(address).context["adminform"].form
    given = {name: form[name].value() for name in form.fields}
    given = {name: "" if value is None else value for name, value in given.items() if value is not False}
    count = LimitOverride.objects.count()
    formset: dict[str, Any] = {"overrides-TOTAL_FORMS": count, "overrides-INITIAL_FORMS": count}
    for place, row in enumerate(LimitOverride.objects.order_by("key")):
        formset |= {f"overrides-{place}-id": row.pk, f"overrides-{place}-key": row.key}
        formset |= {f"overrides-{place}-capacity": row.capacity, f"overrides-{place}-limit": row.limit_id}
    return {**given, **formset, "_save": "Save"}


def send(client: Client, address: str, **changes: Any) -> Any:
    return client.post(address, {**fields_of(client, address), **changes})


def test_a_cap_is_edited_with_a_reason_and_holds_at_once(limit):
    assert send(signed_in("limits manager"), page(limit), capacity="400", reason="they raised it").status_code == 302
    assert [rule.capacity for rule in catalogue.rules()] == [400]
    entry = AuditEntry.objects.get(action="update_limit")
    assert (entry.before, entry.after, entry.reason) == ({"capacity": 300.0}, {"capacity": 400.0}, "they raised it")
    assert entry.actor.startswith("user:")


def test_the_bucket_trap_is_refused_at_the_field_with_figures_that_fit(limit):
    changes = {"algorithm": "token_bucket", "refill_per_second": "5", "provider_quota": "300"}
    answer = send(signed_in("limits manager"), page(limit), **changes)
    assert answer.status_code == 200
    assert "Safe: a burst of 9 and a refill of 4.82987 a second" in answer.content.decode()
    assert "capacity" in answer.context["adminform"].form.errors
    limit.refresh_from_db()
    assert limit.algorithm == "sliding_window"


def test_a_bucket_of_which_only_the_quota_is_given_is_filled_in(limit):
    changes = {"algorithm": "token_bucket", "capacity": "", "refill_per_second": "", "provider_quota": "300"}
    send(signed_in("limits manager"), page(limit), confirmed="on", **changes)
    limit.refresh_from_db()
    assert (limit.algorithm, limit.capacity, limit.refill_per_second) == ("token_bucket", 9, pytest.approx(291 / 60.25))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": "1000"}, "3.33 times as much"),
        ({"capacity": "100"}, "3 times as strongly"),
        ({"shadow": "on"}, "holds nothing back"),
        ({"capacity": "0"}, "rejects every call"),
        ({"capacity": "200", "algorithm": "fixed_window"}, "twice the cap"),
    ],
)
def test_a_change_that_bites_is_saved_only_once_it_was_read(limit, changes, words):
    client = signed_in("limits manager")
    before = Limit.objects.values().get()
    answer = send(client, page(limit), **changes)
    assert answer.status_code == 200
    assert words in answer.content.decode()
    assert 'name="confirmed"' in answer.content.decode()
    assert Limit.objects.values().get() == before
    assert send(client, page(limit), confirmed="on", **changes).status_code == 302
    assert Limit.objects.values().get() != before


def test_a_small_change_is_saved_without_being_asked(limit):
    assert send(signed_in("limits manager"), page(limit), capacity="290").status_code == 302


def test_two_who_edit_the_same_limit_do_not_overwrite_each_other(limit):
    client = signed_in("limits manager")
    form = fields_of(client, page(limit))
    Limit.objects.filter(pk=limit.pk).update(capacity=310, updated_at=Now())
    answer = client.post(page(limit), {**form, "capacity": "290"})
    assert "Somebody else has changed this limit meanwhile" in answer.content.decode()
    limit.refresh_from_db()
    assert limit.capacity == 310


def test_simulating_compares_and_saves_nothing(limit, counter):
    decide([Call(WRITE)] * 55)
    before = Limit.objects.values().get()
    answer = send(signed_in("limits manager"), page(limit), capacity="30", _simulate="Simulate")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "Calls that would have waited" in text
    assert 'value="30"' in text
    assert answer.context["simulation"].proposed.delayed == 30
    assert Limit.objects.values().get() == before
    assert not AuditEntry.objects.filter(action="update_limit").exists()


def test_simulating_what_cannot_be_tells_why(limit):
    client = signed_in("limits manager")
    answer = send(client, page(limit), capacity="-1", _simulate="Simulate")
    assert "capacity" in answer.context["adminform"].form.errors
    answer = send(client, page(limit), algorithm="concurrency", unit="in_flight", _simulate="Simulate")
    assert "cannot be played again" in answer.content.decode()
    assert "There was nothing" not in answer.content.decode()


def test_a_limit_is_added_by_its_form():
    client, address = signed_in("limits manager"), reverse("admin:ratelimits_limit_add")
    answer = send(client, address, name="tpm", service="llm", unit="tokens", capacity="30000")
    assert "more than 30,000 tokens is rejected" in answer.content.decode()
    assert not Limit.objects.exists()
    assert (
        send(client, address, name="tpm", service="llm", unit="tokens", capacity="30000", confirmed="on").status_code
        == 302
    )
    assert Limit.objects.get().unit == "tokens"
    assert AuditEntry.objects.get(action="create_limit", after__capacity=30000.0).moved == 1


def test_a_window_without_a_figure_says_which_one_it_wants():
    answer = send(signed_in("limits manager"), reverse("admin:ratelimits_limit_add"), name="rpm", service="llm")
    assert "Say how much: a window&#x27;s cap" in answer.content.decode()
    assert "cannot be null" not in answer.content.decode()


def test_overrides_are_added_changed_renamed_and_deleted_with_the_limit_and_audited(limit):
    client = signed_in("limits manager")
    new = {"overrides-TOTAL_FORMS": "1", "overrides-0-limit": limit.pk, "overrides-0-capacity": "500"}
    refused = send(client, page(limit), **new, **{"overrides-0-key": "acme"})
    assert "This limit counts keys such as project:acme." in refused.content.decode()
    send(client, page(limit), **new, **{"overrides-0-key": "project:acme"})
    assert LimitOverride.objects.values_list("key", "capacity").get() == ("project:acme", 500)
    send(client, page(limit), **{"overrides-0-capacity": "600"})
    send(client, page(limit), **{"overrides-0-key": "project:globex"})
    assert LimitOverride.objects.values_list("key", "capacity").get() == ("project:globex", 600)
    send(client, page(limit), **{"overrides-0-DELETE": "on"})
    assert not LimitOverride.objects.exists()
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert [one for one in actions if "override" in one] == [
        "set_override",
        "set_override",
        "delete_override",
        "set_override",
        "delete_override",
    ]


FORM = {"confirmed": "yes", "reason": "tested", "seconds": "5"}


def address_of(screen, verb, row):
    return reverse(f"admin:{screen}_change", args=[row.pk]).replace("/change/", f"/{verb.name}/")


def test_a_counter_is_cooled_down_by_minutes_and_cleared(counter):
    client = signed_in("limits manager")
    client.post(address_of("ratelimits_counter", COOL_DOWN, counter), {**FORM, "seconds": "2"})
    assert [one.kind for one in decide([Call(WRITE)])] == ["retry"]
    counter.refresh_from_db()
    assert 100 < (counter.blocked_until - counter.updated_at).total_seconds() <= 120
    client.post(address_of("ratelimits_counter", CLEAR, counter), FORM)
    assert [one.kind for one in decide([Call(WRITE)])] == ["proceed"]


def test_chosen_counters_are_cleared_from_the_list(counter):
    client = signed_in("limits manager")
    chosen = {"action": "clear_selected", "_selected_action": [counter.pk]}
    client.post(reverse("admin:ratelimits_counter_changelist"), {**chosen, **FORM})
    counter.refresh_from_db()
    assert counter.state == {}


def test_a_proposal_is_offered_only_while_there_is_one(limit, counter):
    client, counters = signed_in("limits manager"), reverse("admin:ratelimits_counter_change", args=[counter.pk])
    assert f"/{ACCEPT.name}/" not in client.get(counters).content.decode()
    Counter.objects.filter(pk=counter.pk).update(proposed_capacity=200, proposed_at=Now())
    text = client.get(counters).content.decode()
    assert f"/{ACCEPT.name}/" in text
    assert "provider says 200" in text
    assert f"/{ACCEPT.name}/" not in signed_in("viewer").get(counters).content.decode()
    text = client.get(page(limit)).content.decode()
    assert "The provider states another cap" in text
    assert f"/{ACCEPT.name}/" not in text
    assert "provider says 200" in client.get(reverse("admin:ratelimits_limit_changelist")).content.decode()


def test_a_prepared_limit_says_that_it_is_not_in_force(limit):
    Limit.objects.update(shadow=True, proposed_at=Now())
    assert "Prepared, and not in force" in signed_in("limits manager").get(page(limit)).content.decode()


def waiting_jobs(count: int, **fields: Any) -> None:
    lane = lane_name(WRITE, project="acme", user="")
    make_jobs(count, state=JobState.RATE_LIMITED, service="sheets", lane=lane, **fields)


def test_the_list_shows_the_fullest_counter_and_the_queue_behind(limit, counter):
    decide([Call(WRITE._replace(project="globex"))] * 90)
    waiting_jobs(7)
    text = signed_in("viewer").get(reverse("admin:ratelimits_limit_changelist")).content.decode()
    assert "project:globex" in text
    assert re.search(r'aria-valuenow="90(\.0)?"', text)
    assert '<span class="qo-number">7</span> jobs' in text


def test_the_page_of_a_limit_shows_its_counters_and_who_used_it(limit, counter):
    waiting_jobs(7)
    text = signed_in("viewer").get(page(limit)).content.decode()
    assert "project:acme" in text
    assert "acme / u" in text
    assert "sheets.update" in text
    assert '<td class="qo-right">7</td>' in text
    assert "_simulate" not in text
    assert 'name="capacity"' not in text


def test_the_page_of_a_counter_shows_its_queue(counter):
    waiting_jobs(7)
    text = signed_in("viewer").get(reverse("admin:ratelimits_counter_change", args=[counter.pk])).content.decode()
    assert "jobs wait, here or for another limit" in text
    assert "acme / u" in text


def test_a_counter_is_reached_from_every_link_whatever_its_key_holds(limit):
    Limit.objects.update(scope="project_user")
    catalogue.forget()
    key = "project:a_5Fb/user:x y?&#%_2F@é"
    decide([Call(Subject("sheets", "write", "a_5Fb", "x y?&#%_2F@é"))])
    client = signed_in("limits manager")
    for source in (
        page(limit),
        reverse("admin:ratelimits_limit_changelist"),
        reverse("admin:ratelimits_counter_changelist"),
    ):
        [address] = set(
            re.findall(r'href="(/admin/ratelimits/counter/[^"]+/change/)', client.get(source).content.decode())
        )
        shown = client.get(address)
        assert shown.context["title"] == key
        [clear] = set(re.findall(r'href="([^"]+/clear/)"', shown.content.decode()))
        done = client.post(clear, FORM)
        assert client.get(done["Location"]).context["title"] == key
    assert AuditEntry.objects.filter(action="clear_counter").count() == 3


def test_the_list_of_counters_is_searched_by_key_and_paged_without_a_count(limit, django_assert_max_num_queries):
    Counter.objects.bulk_create(
        Counter(id=f"{limit.pk:08d}:project:p{n:03}", limit=limit, key=f"project:p{n:03}") for n in range(120)
    )
    client, address = signed_in("superuser"), reverse("admin:ratelimits_counter_changelist")
    with django_assert_max_num_queries(20) as counted:
        first = client.get(address)
    assert not any("COUNT(*)" in query["sql"] for query in counted.captured_queries)
    seen = [row.key for row in first.context["cl"].result_list]
    link = first.context["cl"].older_link
    while link:
        shown = client.get(address + link).context["cl"]
        seen += [row.key for row in shown.result_list]
        link = shown.older_link
    assert seen == [f"project:p{n:03}" for n in range(120)]
    found = client.get(address, {"q": "project:p007"}).context["cl"].result_list
    assert [row.key for row in found] == ["project:p007"]
    assert len(client.get(address, {"q": "p00"}).context["cl"].result_list) == 10
    assert client.get(address, {"q": "\0", "limit": "x", "after": "\0"}).status_code == 200


def test_what_others_wrote_is_shown_as_text(limit):
    subject = Subject("sheets", "write", HOSTILE, HOSTILE)
    decide([Call(subject, kind=HOSTILE)] * 3)
    Limit.objects.update(note=HOSTILE)
    Counter.objects.update(blocked_until=Now(), blocked_reason=HOSTILE)
    client = signed_in("superuser")
    counter = Counter.objects.get()
    for address in (
        reverse("admin:ratelimits_limit_changelist"),
        page(limit),
        reverse("admin:ratelimits_counter_changelist"),
        reverse("admin:ratelimits_counter_change", args=[counter.pk]),
    ):
        answer = client.get(address)
        assert answer.status_code == 200
        assert "<img src=x" not in answer.content.decode(), address


def test_an_empty_installation_says_what_a_limit_is_for():
    client = signed_in("superuser")
    assert (
        "Without one, calls go as fast as the workers can"
        in client.get(reverse("admin:ratelimits_limit_changelist")).content.decode()
    )
    assert "Nothing is counted yet." in client.get(reverse("admin:ratelimits_counter_changelist")).content.decode()
