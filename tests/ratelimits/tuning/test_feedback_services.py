"""What a refusal does to counters and limits."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.utils import quote
from django.db import connection, transaction
from django.db.models.functions import Now
from django.urls import reverse

from jobs.services.upkeep.health import Situation, findings
from jobs.states import JobState
from ratelimits.feedback import PushBack, Violation
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.gauges import gauge_of
from ratelimits.limiter.view.headroom import read_headroom
from ratelimits.limits import catalogue
from ratelimits.limits.save_limit import find_limit
from ratelimits.models import Counter, CounterFeedback, Limit, LimitOverride, QuotaAlert
from ratelimits.subjects import Subject, counter_id
from ratelimits.tuning import proposed_limits, stated_caps
from ratelimits.tuning.feedback import Refusal, push_back, push_backs
from ratelimits.tuning.limits import update_limit
from ratelimits.tuning.resolve_quiet_alerts import resolve_quiet_alerts
from ratelimits.tuning.stated_caps import note_stated_cap
from ratelimits.tuning.steer_counter import cool_down_counter
from ratelimits.tuning.upkeep import forget_old
from tests.factories import make_project
from tests.support.audit import entries_written
from tests.support.cases import every_case
from tests.support.people import signed_in

WRITER = Subject("google-sheets", "write", "acme", "ada")
OTHER = WRITER._replace(user="bob")
READER = WRITER._replace(call_type="read")
ASKER = Subject("gemini", "write", "acme", "ada", "gemini-2.5-flash")
ACTOR = "executor:1"

OF_USER = Violation("WriteRequestsPerMinutePerUser", "user", "requests", "write", stated_cap=60)
OF_PROJECT = Violation("WriteRequestsPerMinutePerProject", "project", "requests", "write")
OF_DAY = Violation("GenerateRequestsPerDay", "project", "requests", per_day=True, model="gemini-2.5-flash")
OF_MINUTE = Violation("GenerateRequestsPerMinute", "project", "requests", model="gemini-2.5-flash")


def limit(name, **fields):
    made = Limit.objects.create(
        **{"name": name, "service": "google-sheets", "call_type": "write", "capacity": 60, **fields}
    )
    catalogue.forget()
    return made


@pytest.fixture
def sheets(db):
    """Limits as those of Google Sheets; by name."""
    catalogue.forget()
    yield {
        "user": limit("user", scope="project_user"),
        "project": limit("project", capacity=300),
        "reads": limit("reads", call_type="read", scope="project_user"),
        "slots": limit("slots", call_type="any", algorithm="concurrency", unit="in_flight", capacity=500),
    }
    catalogue.forget()


@pytest.fixture
def gemini(db):
    """Limits as those of Gemini; by name."""
    catalogue.forget()
    shared = {"service": "gemini", "call_type": "any", "per_model": True}
    yield {
        "rpm": limit("rpm", **shared),
        "tpm": limit("tpm", **shared, unit="tokens", capacity=1000),
        "rpd": limit("rpd", **shared, algorithm="fixed_window", reset_zone="America/Los_Angeles", capacity=50),
    }
    catalogue.forget()


@pytest.fixture
def lines():
    """Lines of the audit trail, as they are recorded."""
    with entries_written() as found:
        yield found


def now():
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        return cursor.fetchone()[0]


def logged():
    return list(CounterFeedback.objects.order_by("pk").values_list("counter", flat=True))


def refuse(*violations, subject=WRITER, retry_after=None, sent_at=None):
    found = PushBack(violations, retry_after)
    return push_back(subject, found, sent_at=now() if sent_at is None else sent_at, actor=ACTOR)


def names(cooling):
    found = Counter.objects.filter(pk__in=cooling.counters).values_list("limit__name", flat=True)
    return sorted(found)


def blocked_for(name, at):
    """Return for how many seconds the only counter of a limit is blocked; None if it is not."""
    until = Counter.objects.filter(limit__name=name).values_list("blocked_until", flat=True).first()
    return None if until is None else until.timestamp() - at


def as_long_as(seconds, at):
    """So many seconds, or as many more as have passed: the statements' clock begins when they do."""
    passed = now() - at
    return pytest.approx(seconds + passed / 2, abs=1 + passed / 2)


@pytest.fixture(autouse=True)
def not_spread(request, monkeypatch):
    """Keep cool-downs to the second, but for the test of their spread."""
    if "spread" not in request.node.name:
        monkeypatch.setattr("random.random", lambda: 0.0)


@every_case(("violation", "slowed"), [
    (OF_USER, ["user"]), (OF_PROJECT, ["project"]), (Violation(unit="requests", call_type="write"), ["user"]),
    (Violation(scope="project"), ["project"]), (Violation(scope="global"), ["project"]),
    (Violation(unit="tokens", scope="user"), ["user"]), (Violation(scope="project", per_day=True), ["project"]),
    (Violation(), ["user"]),
], undone=True)  # fmt: skip
def test_only_the_scope_that_was_violated_is_slowed(sheets, violation, slowed):
    assert names(refuse(violation)) == slowed
    touched = Counter.objects.exclude(pressure=1, blocked_until=None)
    assert sorted(touched.values_list("limit__name", flat=True)) == slowed


def test_a_refusal_that_names_nothing_slows_the_narrowest_limit_of_requests(sheets, gemini):
    assert names(refuse()) == ["user"]
    Limit.objects.filter(name="user").update(enabled=False)
    catalogue.forget()
    assert names(refuse()) == ["project"]
    assert names(refuse(subject=ASKER)) == ["rpm"]


def test_a_refusal_that_names_nothing_slows_what_shows_no_room(gemini):
    assert names(refuse(subject=ASKER)) == ["rpm"]  # all have room
    Counter.objects.all().delete()
    decide([Call(ASKER, cost=950)])
    assert names(refuse(subject=ASKER)) == ["tpm"]
    assert names(refuse(Violation(scope="project"), subject=ASKER)) == ["tpm"]
    assert names(refuse(Violation(unit="requests"), subject=ASKER)) == ["rpm"]  # its word goes before our count
    assert blocked_for("tpm", now()) is not None


def test_a_shadow_limit_is_not_slowed_in_a_real_ones_place(sheets):
    Limit.objects.filter(name="user").update(shadow=True)
    catalogue.forget()
    assert names(refuse(OF_USER)) == ["project"]


def test_other_users_and_reads_go_on(sheets):
    refuse(OF_USER)
    kinds = [decision.kind for decision in decide([Call(WRITER), Call(OTHER), Call(READER)])]
    assert kinds == ["retry", "proceed", "proceed"]


UNKNOWN = Subject("http:api.example.com", "write", "acme", owner="acme")


def test_a_call_refused_where_no_limit_counts_prepares_one_in_shadow_that_cools_down(db, lines):
    catalogue.forget()
    at = now()
    [cooling] = push_backs([Refusal(UNKNOWN, PushBack(), at)], actor=ACTOR, accepted=lambda subject: 60)
    made = Limit.objects.get(service=UNKNOWN.service)
    assert (made.shadow, made.capacity, made.scope, made.call_type) == (True, 60, "project", "write")
    assert (cooling.counters, round(cooling.until - at)) == ((counter_id(made.pk, "project:acme"),), 60)
    assert [line["action"] for line in lines] == ["propose_limit"]
    assert logged() == [counter_id(made.pk, "project:acme")]
    alert = QuotaAlert.objects.get()
    assert (alert.kind, alert.severity, alert.figures["proposed_capacity"]) == ("unlimited", "warning", 60)
    assert made.name in alert.message
    other = UNKNOWN._replace(project="other", owner="other")
    assert [one.kind for one in decide([Call(UNKNOWN), Call(other)])] == ["retry", "proceed"]
    Counter.objects.update(blocked_until=None)
    assert {one.kind for one in decide([Call(UNKNOWN)] * 100)} == {"proceed"}


def test_a_prepared_limit_has_what_the_provider_states(db):
    catalogue.forget()
    found = PushBack((Violation("hour", "project", "requests", stated_cap=900, window_seconds=3600),), 700)
    push_backs([Refusal(UNKNOWN._replace(user="ada", model="m"), found, now())], actor=ACTOR)
    made = Limit.objects.get(service=UNKNOWN.service)
    assert (made.capacity, made.window_seconds, made.scope, made.per_model) == (900, 3600, "project_user", True)
    until = Counter.objects.values_list("blocked_until", flat=True).get()
    assert until is not None
    assert until.timestamp() - now() > 690  # it is no minute's


def test_a_prepared_limit_rises_to_what_was_accepted_until_an_operator_has_it(db):
    make_project("acme")
    catalogue.forget()

    def refused_after(calls):
        Counter.objects.update(blocked_until=None)
        push_backs([Refusal(UNKNOWN, PushBack(), now())], actor=ACTOR, accepted=lambda subject: calls)
        catalogue.forget()
        return Limit.objects.get(service=UNKNOWN.service)

    assert [refused_after(calls).capacity for calls in (60, 90, 30)] == [60, 90, 90]
    update_limit(refused_after(0).pk, {"capacity": 50}, actor="user:1")
    kept = refused_after(200)
    assert (kept.capacity, kept.proposed_at) == (50, None)
    update_limit(kept.pk, {"shadow": False}, actor="user:1")
    resolve_quiet_alerts()
    assert not QuotaAlert.objects.filter(kind="unlimited", resolved_at=None).exists()


def test_nothing_is_prepared_beyond_a_bound_or_against_an_operator_and_calls_wait_all_the_same(db, monkeypatch):
    catalogue.forget()
    refuse(subject=UNKNOWN)
    Limit.objects.update(enabled=False)
    catalogue.forget()
    at = now()
    assert round(refuse(subject=UNKNOWN).seconds) == 60
    monkeypatch.setattr(proposed_limits, "MAX_PROPOSED", 1)
    cooling = refuse(subject=UNKNOWN._replace(service="other"), retry_after=86_000)
    assert (cooling.counters, round(cooling.until - at, -2)) == ((), 86_000)
    assert Limit.objects.count() == 1
    monkeypatch.setattr(proposed_limits, "MAX_PROPOSED", 2)
    many = [UNKNOWN._replace(service=f"s{number}", owner=owner) for number in range(3) for owner in ("acme", "other")]
    push_backs([Refusal(one, PushBack(), now()) for one in many], actor=ACTOR)
    prepared = Limit.objects.filter(proposed_at__isnull=False).values_list("project", flat=True)
    assert sorted(prepared) == ["acme", "acme", "other", "other"]


def test_a_prepared_limit_is_the_projects_whose_calls_were_refused_until_an_operator_shares_it(db):
    make_project("acme")
    catalogue.forget()
    other = UNKNOWN._replace(project="other", owner="other")
    push_backs([Refusal(UNKNOWN, PushBack(), now()), Refusal(other, PushBack(), now())], actor=ACTOR)
    own, others = Limit.objects.order_by("project")
    assert (own.project, others.project) == ("acme", "other")
    assert [[rule.name for rule in catalogue.rules_for(one)] for one in (UNKNOWN, other)] == [[own.name], [others.name]]
    with_credential = UNKNOWN._replace(project="quota-of-the-credential")
    assert [rule.name for rule in catalogue.rules_for(with_credential)] == [own.name]
    update_limit(own.pk, {"shadow": False, "capacity": 60}, actor="user:1")
    assert Limit.objects.get(pk=own.pk).project == "acme"
    update_limit(own.pk, {"project": ""}, actor="user:1")
    catalogue.forget()
    assert {rule.name for rule in catalogue.rules_for(other)} == {own.name, others.name}


def test_a_prepared_limit_is_forgotten_a_week_after_the_last_refusal(db):
    catalogue.forget()
    refuse(subject=UNKNOWN)
    assert proposed_limits.forget_proposed() == 0
    Limit.objects.update(proposed_at=datetime.fromtimestamp(now() - 8 * 86_400, UTC))
    limit("own", service="other", shadow=True)
    assert proposed_limits.forget_proposed() == 1
    assert Limit.objects.get().name == "own"
    limit("of-an-earlier-version", service="other", shadow=True, proposed_at=datetime.fromtimestamp(now(), UTC))
    assert proposed_limits.forget_proposed() == 1
    assert Limit.objects.get().name == "own"


def test_a_hint_spreads_the_counters_that_it_cools_and_never_opens_one_earlier(sheets):
    at, found = now(), PushBack((OF_USER,), 30)
    users = [WRITER._replace(user=f"u{number}") for number in range(20)]
    coolings = push_backs([Refusal(user, found, at) for user in users], actor=ACTOR)
    waits = [cooling.seconds for cooling in coolings]
    assert min(waits) >= 30
    assert max(waits) <= 33
    assert len({round(wait, 2) for wait in waits}) > 10


@every_case(("delay", "seconds"), [(7.0, 7), (0.5, 0.5), (600.0, 600), (3_600.0, 900), (86_400.0, 900)], undone=True)
def test_a_stated_delay_is_kept_to_and_of_a_long_one_a_quarter_of_an_hour_before_anything_tries(sheets, delay, seconds):
    at = now()
    refuse(OF_USER, retry_after=delay)
    assert blocked_for("user", at) == as_long_as(seconds, at)
    gauge = gauge_of(Counter.objects.get(), catalogue.rules()[0], now())
    assert gauge.blocked_until is not None
    assert gauge.blocked_until.timestamp() - at == as_long_as(delay, at)  # as people are told


def test_a_window_longer_than_that_is_kept_to(sheets):
    Limit.objects.filter(name="user").update(window_seconds=7_200)
    catalogue.forget()
    at = now()
    refuse(OF_USER, retry_after=5_000)
    assert blocked_for("user", at) == as_long_as(5_000, at)


def kinds_of(*subjects):
    return [one.kind for one in decide([Call(subject) for subject in subjects])]


HELD = {"of a real limit": WRITER, "of one that is only prepared": Subject("http:api.example.com", "write", "acme")}


@every_case("subject", HELD.values(), undone=True)
def test_in_a_long_delay_one_call_a_minute_tries_until_one_is_not_refused(sheets, moving_clock, lines, subject):
    refuse(subject=subject, retry_after=86_400)
    told = len(lines)
    moving_clock.move(seconds=890)
    [waiting] = decide([Call(subject)])
    assert (waiting.kind, "one call a minute tries" in waiting.reason) == ("retry", True)
    moving_clock.move(seconds=11)
    room = read_headroom([subject])[subject]
    assert (room.calls, round((room.rate_per_second or 0) * 60)) == (1, 1)
    assert kinds_of(subject, subject) == ["proceed", "retry"]
    refuse(subject=subject, retry_after=86_400)
    moving_clock.move(seconds=58)
    assert kinds_of(subject) == ["retry"]
    moving_clock.move(seconds=3)
    assert kinds_of(subject, subject) == ["proceed", "retry"]
    assert len(lines) == told  # one that says the same is no news
    moving_clock.move(seconds=61)  # nobody refused it
    assert kinds_of(*[subject] * 5) == ["proceed"] * 5


def test_a_probe_that_is_told_a_short_delay_ends_the_long_one_and_so_do_operators(sheets, moving_clock):
    refuse(OF_USER, retry_after=86_400)
    assert "one call a minute" in QuotaAlert.objects.get().message
    moving_clock.move(seconds=901)
    assert kinds_of(WRITER) == ["proceed"]
    refuse(OF_USER, retry_after=30)
    moving_clock.move(seconds=62)
    assert kinds_of(WRITER, WRITER) == ["proceed"] * 2
    refuse(OF_USER, retry_after=86_400)
    cool_down_counter(Counter.objects.get(limit__name="user").pk, 0, actor="user:1", reason="they say it was a mistake")
    assert kinds_of(WRITER, WRITER) == ["proceed"] * 2


def test_without_a_delay_it_cools_until_our_count_has_room(sheets):
    assert {decision.kind for decision in decide([Call(WRITER)] * 60)} == {"proceed"}
    at = now()
    refuse(OF_USER)
    assert 55 < blocked_for("user", at) < 65


def test_without_a_delay_and_with_room_it_cools_for_a_while(sheets):
    at = now()
    refuse(OF_USER)
    assert blocked_for("user", at) == as_long_as(18, at)


def test_one_refusal_at_a_full_limit_costs_a_few_per_cent(sheets):
    assert {decision.kind for decision in decide([Call(WRITER._replace(user=f"u{n}")) for n in range(300)])} == {
        "proceed"
    }
    refuse(OF_PROJECT)
    assert Counter.objects.get(limit__name="project").pressure == pytest.approx(0.97)


def test_refusals_of_a_burst_at_a_full_limit_add_up(sheets):
    decide([Call(WRITER._replace(user=f"u{n}")) for n in range(300)])
    sent, found = now(), PushBack((OF_PROJECT,), 5)
    push_backs([Refusal(WRITER, found, sent)] * 10, actor=ACTOR)
    assert Counter.objects.get(limit__name="project").pressure == pytest.approx(1 - 0.03 - 4 * 9 / 300)
    push_backs([Refusal(WRITER, found, sent)] * 30, actor=ACTOR)
    assert Counter.objects.get(limit__name="project").pressure == pytest.approx(0.7)


def test_nothing_is_unblocked_earlier(sheets):
    at = now()
    refuse(OF_USER, retry_after=60)
    refuse(OF_USER, retry_after=1)
    assert blocked_for("user", at) == as_long_as(60, at)


def seconds_to_midnight(at):
    here = datetime.fromtimestamp(at, ZoneInfo("America/Los_Angeles"))
    following = datetime.fromtimestamp(at + 86_400, here.tzinfo).date()
    return datetime(following.year, following.month, following.day, tzinfo=here.tzinfo).timestamp() - at


def test_a_days_quota_is_parked_to_its_reset_however_short_the_delay(gemini):
    at = now()
    cooling = refuse(OF_MINUTE, OF_DAY, subject=ASKER, retry_after=3)
    assert names(cooling) == ["rpd", "rpm"]
    assert blocked_for("rpd", at) == pytest.approx(seconds_to_midnight(at), abs=3)
    assert blocked_for("rpm", at) == as_long_as(3, at)
    assert cooling.until - at == pytest.approx(seconds_to_midnight(at), abs=3)
    assert Counter.objects.get(limit__name="rpd").pressure == 1


def test_a_minutes_refusal_never_parks_for_a_day(gemini):
    Limit.objects.exclude(name="rpd").update(enabled=False)
    catalogue.forget()
    at = now()
    assert names(refuse(OF_MINUTE, subject=ASKER, retry_after=80_000)) == ["rpd"]
    assert blocked_for("rpd", at) == as_long_as(900, at)
    assert names(refuse(OF_MINUTE, subject=ASKER)) == ["rpd"]


def test_a_days_refusal_that_no_limit_counts_is_told_to_the_operator(gemini):
    Limit.objects.filter(name="rpd").update(enabled=False)
    catalogue.forget()
    at = now()
    assert names(refuse(OF_DAY, subject=ASKER, retry_after=3)) == ["rpm"]
    assert blocked_for("rpm", at) == as_long_as(120, at)
    refuse(OF_DAY, subject=ASKER, retry_after=40_000)
    assert blocked_for("rpm", at) == as_long_as(40_000, at)
    assert "no limit here counts the day's quota" in QuotaAlert.objects.get().message


def test_only_the_tokens_are_slowed_where_tokens_were_missing(gemini):
    violation = Violation("InputTokensPerModelPerMinute", "project", "tokens", model="gemini-2.5-flash")
    assert names(refuse(violation, subject=ASKER)) == ["tpm"]


def test_a_burst_of_refusals_slows_once(sheets, lines):
    sent = now()
    for _ in range(20):
        refuse(OF_PROJECT, sent_at=sent, retry_after=5)
    assert Counter.objects.get(limit__name="project").pressure == pytest.approx(0.7)
    assert (len(logged()), lines) == (1, [])
    refuse(OF_PROJECT, sent_at=now())
    assert Counter.objects.get(limit__name="project").pressure == pytest.approx(0.49, abs=0.01)


def test_a_burst_in_one_flush_locks_once_and_answers_each(sheets, lines):
    sent = now()
    found = PushBack((OF_PROJECT, OF_USER), 5)
    coolings = push_backs([Refusal(subject, found, sent) for subject in (OTHER, WRITER, OTHER)], actor=ACTOR)
    assert [names(cooling) for cooling in coolings] == [["project", "user"]] * 3
    assert coolings[0] == coolings[2]
    assert sorted(logged()) == sorted(Counter.objects.values_list("pk", flat=True))
    assert (len(logged()), lines) == (3, [])


def test_each_change_is_in_a_log_of_its_own_and_raises_an_alert(sheets, lines):
    at = now()
    refuse(OF_USER, retry_after=30)
    [line] = CounterFeedback.objects.all()
    identity = counter_id(sheets["user"].pk, "project:acme/user:ada")
    assert (line.actor, line.counter, round(line.pressure, 3)) == (ACTOR, identity, 0.7)
    assert line.blocked_until
    assert line.blocked_until > datetime.fromtimestamp(at + 29, UTC)
    assert "WriteRequestsPerMinutePerUser" in line.reason
    assert lines == [], "the audit trail is of what people and rules changed"
    page = signed_in("viewer").get(reverse("admin:ratelimits_counter_change", args=[quote(identity)])).content.decode()
    assert "What the provider refused lately" in page
    assert line.reason in page
    CounterFeedback.objects.update(at=Now() - timedelta(days=8))
    forget_old()
    assert logged() == []
    alert = QuotaAlert.objects.get()
    assert (alert.kind, alert.severity, alert.subject) == ("exceeded", "critical", identity)
    assert alert.figures["stated_cap"] == 60


def test_pressure_leaves_less_of_the_cap_and_recovers(sheets):
    refuse(OF_USER, retry_after=0.001)
    Counter.objects.update(blocked_until=None)
    assert [one.kind for one in decide([Call(WRITER)] * 60)].count("proceed") == 42
    moved = datetime.fromtimestamp(now() - 180, UTC)
    Counter.objects.filter(limit__name="user").update(pressure_changed_at=moved, state={})
    assert [one.kind for one in decide([Call(WRITER)] * 60)].count("proceed") == 60


TOKENS = PushBack((Violation("InputTokensPerModelPerMinute", "project", "tokens", model="gemini-2.5-flash"),), 30)


def refuse_tokens(**fields):
    fields = {"cost": 800.0, "ratio": 1.3, "label": "job 7", **fields}
    return push_backs([Refusal(ASKER, TOKENS, now(), **fields)], actor=ACTOR)[0]


def test_a_call_that_was_refused_alone_and_is_too_large_by_the_measure_of_others_can_never_fit(gemini, lines):
    decide([Call(ASKER, cost=800)])
    cooling = refuse_tokens()
    assert (cooling.counters, cooling.seconds) == ((), 0)
    assert "1,040 tokens" in cooling.never
    assert "cap of 1,000" in cooling.never
    assert {key: cooling.figures[key] for key in ("needed", "estimated", "ratio", "cap")} == {
        "needed": 1040,
        "estimated": 800,
        "ratio": 1.3,
        "cap": 1000,
    }
    assert not Counter.objects.exclude(pressure=1, blocked_until=None).exists()
    assert "job 7 can never fit" in QuotaAlert.objects.get(kind="exceeded").message


@every_case("fields", [{"ratio": 1.2}, {"ratio": None}, {"cost": 500.0}, {"known_cost": 700.0}], undone=True)
def test_a_call_that_may_fit_is_not_given_up(gemini, fields):
    decide([Call(ASKER, cost=800)])
    cooling = refuse_tokens(**fields)
    assert (cooling.never, names(cooling)) == ("", ["tpm"])


def test_a_call_that_others_left_no_room_for_is_not_given_up(gemini):
    decide([Call(ASKER, cost=800), Call(ASKER, cost=150)])
    assert refuse_tokens().never == ""


def test_what_the_provider_says_is_too_large_can_never_fit(gemini):
    violation = Violation("tokens per min", "project", "tokens", stated_cap=900, requested=950)
    [cooling] = push_backs([Refusal(ASKER, PushBack((violation,)), now(), 100.0)], actor=ACTOR)
    assert "950 tokens" in cooling.never
    assert "cap of 900" in cooling.never


def test_the_second_refusal_of_one_call_presses_nobody_else_and_it_waits_longer_each_time(gemini):
    first = refuse_tokens(ratio=None)
    pressure = Counter.objects.get(limit__name="tpm").pressure
    Counter.objects.update(blocked_until=None)
    waits = [refuse_tokens(ratio=None, times_before=times) for times in (1, 2, 9)]
    assert names(first) == ["tpm"]
    assert [(one.counters, round(one.seconds)) for one in waits] == [((), 60), ((), 120), ((), 960)]
    counter = Counter.objects.get(limit__name="tpm")
    assert (counter.pressure, counter.blocked_until) == (pressure, None)


WHOLE = {"input_tokens": 50, "output_tokens": 20, "max_output_tokens": 300}


def refuse_whole(moving_clock, **fields):
    """Three small calls of large bounds use a quarter of the limit, and the third of them is refused."""
    calls = [Call(ASKER, cost=70, known_cost=50, amounts=WHOLE)] * 3
    assert {one.kind for one in decide(calls)} == {"proceed"}
    found = PushBack((Violation("", "project", "tokens"),), 1)
    refusal = Refusal(ASKER, found, now() + moving_clock.seconds, 70, known_cost=50, amounts=WHOLE, **fields)
    push_backs([refusal] * 5, actor=ACTOR)
    moving_clock.move(seconds=120)


def test_refusals_while_there_is_room_by_what_calls_use_propose_to_count_them_whole(gemini, moving_clock, lines):
    for _ in range(2):
        refuse_whole(moving_clock)
    assert Limit.objects.get(name="tpm").proposed_reserves == ""
    refuse_whole(moving_clock)
    row = Limit.objects.get(name="tpm")
    assert (row.reserves, row.proposed_reserves) == ("used", "max")
    assert [line["action"] for line in lines].count("propose_reserves") == 1
    assert "seems to count all" in QuotaAlert.objects.get(kind="exceeded").message
    update_limit(row.pk, {"reserves": "max"}, actor="user:1")
    assert Limit.objects.get(name="tpm").proposed_reserves == ""
    Counter.objects.all().delete()
    kinds = [one.kind for one in decide([Call(ASKER, cost=70, known_cost=50, amounts=WHOLE)] * 3)]
    assert kinds == ["proceed", "proceed", "defer"]


def test_refusals_that_counting_whole_would_not_explain_propose_nothing(gemini, moving_clock):
    few = {**WHOLE, "max_output_tokens": 25}
    for _ in range(4):
        decide([Call(ASKER, cost=70, known_cost=50, amounts=few)])
        found = PushBack((Violation("", "project", "tokens"),), 1)
        push_backs([Refusal(ASKER, found, now() + moving_clock.seconds, 70, known_cost=50, amounts=few)], actor=ACTOR)
        moving_clock.move(seconds=120)
    assert Limit.objects.get(name="tpm").proposed_reserves == ""


def stated(cap, violation=OF_USER):
    return Violation(violation.name, violation.scope, violation.unit, violation.call_type, stated_cap=cap)


ADAS, BOBS = "project:acme/user:ada", "project:acme/user:bob"


def proposed():
    return dict(Counter.objects.exclude(proposed_capacity=None).values_list("key", "proposed_capacity"))


def test_a_stated_cap_waits_for_an_operator(sheets, lines):
    refuse(stated(40))
    row = Limit.objects.get(name="user")
    assert (row.capacity, row.proposed_at, proposed()) == (60, None, {ADAS: 40})
    assert [line["action"] for line in lines] == ["propose_cap"]
    refuse(stated(40))
    assert [line["action"] for line in lines].count("propose_cap") == 1


@pytest.mark.parametrize("act", ["accept", "decline"])
def test_a_smaller_cap_that_is_stated_is_a_warning_in_plain_words_until_somebody_has_decided(sheets, act):
    refuse(stated(30), retry_after=40)
    alert = QuotaAlert.objects.get()
    assert alert.severity == "warning"
    said = "google-sheets allows 30 a minute, the limit user says 60, for ada of acme"
    assert alert.message == f"{said}: accept it on its counter's page, or keep the limit"
    counts = dict.fromkeys(map(str, JobState), 0)
    [first, *_] = findings(Situation(counts=counts, executors=["alive"], alerts=[alert]))
    assert (first.tone, first.key) == ("warn", str(alert.pk))
    assert alert.message in first.text
    if act == "accept":
        stated_caps.accept_proposal(alert.subject, actor=ACTOR)
    else:
        stated_caps.decline_proposal(alert.subject, actor=ACTOR, reason="shared")
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()
    refuse(OF_PROJECT, retry_after=500)
    message = QuotaAlert.objects.get(resolved_at=None).message
    assert re.search(r"; no calls for \d+ (s|min)$", message), message
    assert "UTC" not in message


def test_a_stated_cap_is_taken_over_for_its_key_alone_where_the_limit_learns(sheets, lines):
    Limit.objects.filter(name="user").update(learns_caps=True)
    Counter.objects.create(
        id=counter_id(sheets["user"].pk, ADAS), limit=sheets["user"], key=ADAS, proposed_capacity=50, proposed_at=Now()
    )
    catalogue.forget()
    refuse(stated(40))
    refuse(stated(50), subject=OTHER)
    assert Limit.objects.get(name="user").capacity == 60
    assert dict(LimitOverride.objects.values_list("key", "capacity")) == {ADAS: 40, BOBS: 50}
    assert proposed() == {}
    line = lines[0]
    assert (line["actor"], line["action"], line["before"]) == (ACTOR, "set_override", None)
    assert "stated by google-sheets" in line["reason"]
    Counter.objects.update(blocked_until=None, pressure_changed_at=None, pressure=1)
    admitted = [
        [one.kind for one in decide([Call(WRITER._replace(user=user))] * 60)].count("proceed")
        for user in ("ada", "bob", "eve")
    ]
    assert admitted == [40, 50, 60]


def test_a_limit_that_counts_all_together_changes_itself(sheets, lines):
    Limit.objects.filter(name="project").update(learns_caps=True, scope="global")
    catalogue.forget()
    refuse(Violation("all", "global", "requests", "write", stated_cap=200))
    row = Limit.objects.get(name="project")
    assert (row.capacity, LimitOverride.objects.count()) == (200, 0)
    assert lines[-1]["action"] == "update_limit"


def test_a_learned_cap_of_a_bucket_keeps_the_quota_in_every_minute(sheets):
    bucket = {"algorithm": "token_bucket", "capacity": 9, "refill_per_second": 4.85, "provider_quota": 300}
    Limit.objects.filter(name="project").update(learns_caps=True, **bucket)
    catalogue.forget()
    refuse(stated(300, OF_PROJECT))
    assert not LimitOverride.objects.exists()
    refuse(stated(200, OF_PROJECT))
    own = LimitOverride.objects.get(key="project:acme")
    assert own.capacity + 60.25 * (own.refill_per_second or 0) == pytest.approx(200)
    assert Limit.objects.get(name="project").provider_quota == 300


def test_a_cap_too_small_for_a_bucket_stays_a_proposal(sheets):
    bucket = {"algorithm": "token_bucket", "capacity": 9, "refill_per_second": 4.85, "provider_quota": 300}
    Limit.objects.filter(name="project").update(learns_caps=True, **bucket)
    catalogue.forget()
    refuse(stated(1, OF_PROJECT))
    assert (Limit.objects.get(name="project").capacity, proposed()) == (9, {"project:acme": 1})


def test_the_cap_of_a_key_of_its_own_is_learned_for_that_key(sheets):
    Limit.objects.filter(name="user").update(learns_caps=True)
    own = LimitOverride.objects.create(limit=sheets["user"], key=ADAS, capacity=100, note="ours")
    catalogue.forget()
    refuse(stated(40))
    own.refresh_from_db()
    assert (own.capacity, own.note, Limit.objects.get(name="user").capacity) == (40, "ours", 60)


@every_case(
    ("fields", "violation"),
    [
        ({"window_seconds": 10}, stated(40)),  # the cap is a minute's
        ({"unit": "tokens"}, stated(40)),
        ({}, Violation("x", "", "requests", "write", stated_cap=40)),  # nobody says whose
        ({}, Violation("x", "user", "requests", "write", per_day=True, stated_cap=40)),
    ],
    undone=True,
)
def test_a_cap_of_something_else_is_not_a_limits_own(sheets, fields, violation):
    Limit.objects.filter(name="user").update(learns_caps=True, **fields)
    catalogue.forget()
    refuse(violation)
    assert set(Limit.objects.values_list("capacity", flat=True)) == {60, 300, 500}
    assert (proposed(), LimitOverride.objects.count()) == ({}, 0)


def test_a_limit_deleted_meanwhile_learns_nothing(sheets):
    [rule] = [rule for rule in catalogue.rules() if rule.name == "user"]
    sheets["user"].delete()
    assert note_stated_cap(rule, "project:acme/user:ada", 40, actor=ACTOR) is False


@pytest.mark.django_db(transaction=True)
def test_an_operator_who_edits_a_limit_is_not_waited_for():
    catalogue.forget()
    row = limit("user", scope="project_user", learns_caps=True)

    def learn():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '5s'")
            return names(refuse(stated(40)))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        find_limit(row.pk, lock=True)
        assert pool.submit(learn).result(20) == ["user"]
    assert (Limit.objects.get(pk=row.pk).capacity, LimitOverride.objects.count()) == (60, 0)
    assert Counter.objects.get().blocked_until is not None
    catalogue.forget()


@pytest.mark.django_db(transaction=True)
def test_refusals_of_one_pace_at_once_slow_once_and_never_deadlock():
    catalogue.forget()
    for number in range(4):
        limit(f"limit-{number}", scope=["project", "project_user"][number % 2])
    sent, barrier = now(), Barrier(8)

    def report(number):
        try:
            barrier.wait(10)
            found = PushBack((OF_PROJECT, OF_USER) if number % 2 else (OF_USER, OF_PROJECT), 5)
            subjects = (WRITER, OTHER) if number % 4 < 2 else (OTHER, WRITER)
            push_backs([Refusal(subject, found, sent) for subject in subjects], actor=ACTOR)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(report, range(8)))
    assert Counter.objects.count() == 6
    assert {round(factor, 3) for factor in Counter.objects.values_list("pressure", flat=True)} == {0.7}
    catalogue.forget()
