"""The trackers, in all forms, against the real server: each answer, and each failure, leads where it should."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from queueops.core.embedded.cluster import EmbeddedServer
from queueops.tenancy.models import ProducerKey
from queueops_client import (
    ApiError,
    AsyncUsageTracker,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    QuotaExceeded,
    QuotaUnavailable,
    ServerError,
    TooManyRequests,
    Unreachable,
    UsageTracker,
)
from ratelimits.models import Allowance, UsageEvent, UsageReservation, UsageTracking
from tests.api.conftest import key_for
from tests.client.both import Both
from tests.client.interposer import Interposer, Reply, interposed
from tests.client.typescript import TypeScriptUsageTracker
from tests.dashboards.live.conftest import web_process
from tests.factories import make_allowance
from tests.support.background import in_background
from tests.support.issuers import USER as TOKEN_USER
from tests.support.issuers import make_issuer, shared_token
from tests.support.own_server import bring_back
from tests.support.processes import free_port, wait_for

FORMS = {"blocking": UsageTracker, "asynchronous": AsyncUsageTracker, "typescript": TypeScriptUsageTracker}
USER = UUID(int=7)
QUOTA = 1_000


class Failed(Exception):
    """Of the call to the provider."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Any:
    return FORMS[request.param]


@pytest.fixture
def secret(transactional_db: None) -> str:
    """Of a key of acme, whose users may use 1,000 tokens a month."""
    make_allowance("acme", unit="tokens", quota=QUOTA)
    return key_for("acme", scopes=["usage"])


Make = Callable[..., Both]


@pytest.fixture
def tracker(form: Any, address: str, secret: str, tmp_path: Path) -> Iterator[Make]:
    """Makes trackers that share one outbox, and send only when they are told to."""
    made: list[Both] = []

    def make(**options: Any) -> Both:
        given = {"token": secret, "path": tmp_path / "outbox", "background": False, "user_id": USER, **options}
        made.append(Both(form, given.pop("base_url", address), **given))
        return made[-1]

    yield make
    for one in made:
        one.__exit__(None, None, None)


@pytest.fixture
def between(address: str) -> Iterator[Interposer]:
    with in_background(interposed(address)) as running:
        yield running


def counted(user_id: UUID = USER) -> int:
    """What the server has counted, which is also the sum of the events that it has."""
    used = sum(UsageTracking.objects.filter(user_id=user_id).values_list("used", flat=True))
    assert used == sum(UsageEvent.objects.filter(user_id=user_id).values_list("amount", flat=True))
    return used


def held() -> int:
    return sum(UsageTracking.objects.values_list("reserved", flat=True))


def test_a_use_is_counted_once_however_often_it_is_flushed(tracker: Make):
    mine = tracker(policy="optimistic")
    event_ids = {mine.use(tokens, estimate=500, service="gemini") for tokens in (300, 0, 42)}
    assert mine.report().pending == 3
    done = mine.flush()
    assert (done.sent, done.rejected, done.pending) == (3, 0, 0)
    assert (mine.flush().sent, counted()) == (0, 342)
    assert {str(event.event_id) for event in UsageEvent.objects.filter(service="gemini")} == event_ids


def test_the_standing_is_the_servers(tracker: Make):
    mine = tracker(policy="optimistic")
    mine.use(300, estimate=300)
    mine.flush()
    standing = mine.standing()
    assert (standing.user_id, standing.unit, standing.policy) == (USER, "tokens", "strict")
    assert (standing.quota, standing.used, standing.reserved, standing.overage) == (QUOTA, 300, 0, 0)
    assert (standing.month, standing.remaining) == (f"{timezone.now():%Y-%m}", 700)
    assert standing.resets_at > timezone.now()
    assert mine.known().remaining == 700


def test_a_strict_use_holds_what_it_may_take_until_it_has_ended(tracker: Make):
    mine = tracker(policy="strict")
    mine.use(80, estimate=100)
    assert held() == 100
    mine.flush()
    assert (held(), counted()) == (0, 80)
    assert UsageReservation.objects.get().status == "confirmed"


def test_a_call_that_failed_gives_back_what_was_held(tracker: Make):
    mine = tracker(policy="strict")
    with pytest.raises(Failed):
        mine.use(Failed(), estimate=100)
    mine.flush()
    assert (held(), counted(), UsageReservation.objects.get().status) == (0, 0, "cancelled")


def test_beyond_the_quota_a_strict_use_is_refused_with_the_figures(tracker: Make):
    mine = tracker(policy="strict")
    mine.use(900, estimate=900)
    mine.flush()
    with pytest.raises(QuotaExceeded) as refused:
        mine.use(1, estimate=101)
    assert isinstance(refused.value, Conflict)
    assert (refused.value.remaining, refused.value.status, refused.value.code) == (100, 409, "quota_exceeded")
    assert refused.value.resets_at
    assert refused.value.details["quota"] == QUOTA
    mine.use(100, estimate=100)
    mine.flush()
    assert counted() == QUOTA


def test_where_overage_is_recorded_a_strict_use_goes_on_and_counts(tracker: Make):
    Allowance.objects.update(policy="record_overage")
    mine = tracker(policy="strict")
    mine.use(1_600, estimate=1_500)
    assert mine.flush().sent == 1
    assert counted() == 1_600
    assert UsageEvent.objects.get().over_limit
    assert mine.standing().overage == 600


def test_an_allowance_of_requests_counts_calls(tracker: Make):
    Allowance.objects.update(unit="requests")
    mine = tracker(policy="strict")
    mine.use(700)
    mine.flush()
    assert (counted(), UsageEvent.objects.get().tokens) == (1, 700)


def test_a_users_token_counts_for_its_user_and_sends_nobody_elses(tracker: Make):
    make_issuer(scopes=["usage"])
    others = tracker(policy="optimistic")
    others.use(5, estimate=5)
    mine = tracker(token=shared_token(), user_id=TOKEN_USER, policy="strict")
    mine.use(80, estimate=100)
    assert mine.flush().sent == 1
    assert (counted(TOKEN_USER), mine.standing().used, counted()) == (80, 80, 0)
    assert others.flush().sent == 1


def test_a_token_that_is_somebody_elses_counts_nothing_for_them(tracker: Make):
    make_issuer(scopes=["usage"])
    mine = tracker(token=shared_token(), user_id=USER, policy="optimistic")
    event_id = mine.use(5, estimate=5)
    assert mine.flush().rejected == 1
    [row] = mine.report().rejected
    assert (row.event_id, row.reason, row.tokens) == (event_id, "foreign_user", 5)
    strict = tracker(token=shared_token(), user_id=USER, policy="strict")
    with pytest.raises(NotAllowed) as refused:
        strict.use(5, estimate=5)
    assert refused.value.code == "foreign_user"
    assert not UsageEvent.objects.exists()


def test_a_device_whose_clock_is_years_behind_is_counted_now(tracker: Make):
    behind = tracker(policy="optimistic", clock=lambda: time.time() - 3 * 365 * 86_400)
    behind.use(10, estimate=10)
    behind.standing()
    assert behind.flush().sent == 1
    assert abs(UsageEvent.objects.get().occurred_at - timezone.now()) < timedelta(minutes=1)


def test_what_was_offline_for_too_long_is_set_apart_with_the_reason(tracker: Make):
    days_ago = [40]
    mine = tracker(policy="optimistic", clock=lambda: time.time() - days_ago[0] * 86_400)
    event_id = mine.use(10, estimate=10)
    days_ago[0] = 0
    mine.use(5, estimate=5)
    done = mine.flush()
    assert (done.sent, done.rejected, done.pending) == (1, 1, 0)
    [row] = mine.report().rejected
    assert (row.event_id, row.reason) == (event_id, "too_old")
    assert "35 days" in row.message
    assert counted() == 5


PAGE = "<html><title>Sign in to the network</title></html>"
RESULT = {"event_id": str(uuid4()), "status": "accepted"}
FAILURES: dict[str, tuple[Reply, type[ApiError]]] = {
    "401": (Reply.refusal(401, "expired_token"), NotAuthenticated),
    "403": (Reply.refusal(403, "missing_scope"), NotAllowed),
    "404": (Reply.refusal(404, "no_allowance"), NotFound),
    "404 of another server": (Reply(404, PAGE), NotFound),
    "409": (Reply.refusal(409, "wrong_state"), Conflict),
    "400 of a proxy": (Reply(400, PAGE), InvalidRequest),
    "405": (Reply.refusal(405, "method_not_allowed"), InvalidRequest),
    "413": (Reply.refusal(413, "body_too_large"), InvalidRequest),
    "422": (Reply.refusal(422, "invalid_input"), InvalidRequest),
    "429": (Reply.refusal(429, "throttled", Retry_After="7"), TooManyRequests),
    "500": (Reply.refusal(500, "internal_error"), ServerError),
    "502": (Reply(502, PAGE), ServerError),
    "503": (Reply.refusal(503, "database_unavailable", Retry_After="5"), ServerError),
    "504": (Reply(504, PAGE), ServerError),
    "redirect": (Reply(302, "", {"Location": "https://example.org/"}), ApiError),
    "a page instead": (Reply(200, PAGE), ApiError),
    "half an answer": (Reply(200, '{"results": [{"event_id"'), ApiError),
    "nothing": (Reply(204), ServerError),
    "an empty object": (Reply(200, {}), ServerError),
    "a list": (Reply(200, []), ServerError),
    "no results": (Reply(200, {"results": [], "usage": []}), ServerError),
    "results of others": (Reply(200, {"results": [RESULT], "usage": []}), ServerError),
    "results of no kind": (Reply(200, {"results": [7], "usage": []}), ServerError),
    "a status nobody knows": (Reply(200, {"results": 7}), ServerError),
}


def test_whatever_is_answered_instead_loses_nothing_and_counts_nothing_twice(tracker: Make, between: Interposer):
    mine = tracker(policy="optimistic", base_url=between.url)
    for number, (name, (reply, expected)) in enumerate(FAILURES.items()):
        mine.use(10, estimate=10)
        # The second time the server has counted it, and only the answer is another.
        for one in (reply, replace(reply, lets_through=True)):
            between.replies = [one]
            with pytest.raises(expected) as failed:
                mine.flush()
            report = mine.report()
            assert (report.pending, report.rejected, between.replies) == (1, (), []), name
            if wait := reply.headers.get("Retry-After"):
                assert failed.value.retry_after == float(wait)
        assert mine.flush().sent == 1, name
        assert counted() == 10 * (number + 1), name
        assert mine.report().last_error is None


def test_what_only_a_person_can_mend_is_told_until_it_is(tracker: Make, between: Interposer):
    mine = tracker(policy="optimistic", base_url=between.url)
    mine.use(10, estimate=10)
    for name in ("401", "403", "404", "413"):
        between.replies = [FAILURES[name][0]]
        with pytest.raises(ApiError) as failed:
            mine.flush()
        assert mine.report().paused == str(failed.value)
    for name in ("429", "503"):
        between.replies = [FAILURES[name][0]]
        with pytest.raises(ApiError):
            mine.flush()
        assert mine.report().paused is None
    mine.flush()
    assert (mine.report().paused, counted()) == (None, 10)


def test_a_body_that_is_too_large_for_a_proxy_goes_in_parts(tracker: Make, between: Interposer):
    mine = tracker(policy="optimistic", base_url=between.url)
    for _ in range(8):
        mine.use(10, estimate=10)
    between.replies = [FAILURES["413"][0]] * 2
    assert mine.flush().sent == 8
    assert (counted(), between.passed) == (80, 3)


def test_a_row_that_is_refused_even_alone_is_set_apart_and_the_others_count(tracker: Make, between: Interposer):
    mine = tracker(policy="optimistic", base_url=between.url)
    event_id, _ = (mine.use(tokens, estimate=100) for tokens in (10, 20))
    between.replies = [FAILURES["422"][0]] * 2
    done = mine.flush()
    assert (done.sent, done.rejected, counted()) == (1, 1, 20)
    [row] = mine.report().rejected
    assert (row.event_id, row.reason, row.tokens) == (event_id, "invalid_input", 10)
    assert mine.retry_rejected() == 1
    mine.flush()
    assert counted() == 30


ASKED: dict[str, tuple[Reply, type[Exception]]] = {
    **{name: FAILURES[name] for name in ("401", "403", "404", "422", "a page instead", "an empty object", "a list")},
    "409": (Reply.refusal(409, "quota_exceeded"), QuotaExceeded),
    **{name: (FAILURES[name][0], QuotaUnavailable) for name in ("429", "500", "502", "503", "504")},
}


def test_a_use_that_must_be_asked_for_does_not_begin_unless_the_answer_is_yes(tracker: Make, between: Interposer):
    mine = tracker(policy="strict", base_url=between.url)
    mine.standing()
    for name, (reply, expected) in ASKED.items():
        between.replies = [reply] * 50
        with pytest.raises(expected) as refused:
            mine.use(AssertionError("it was called"), estimate=100)
        between.replies = []
        report = mine.report()
        assert (report.pending, report.in_progress, report.intents) == (0, 0, ()), name
        if wait := reply.headers.get("Retry-After"):
            assert getattr(refused.value, "retry_after", None) == float(wait)
    assert held() == 0
    mine.use(10, estimate=100)
    mine.flush()
    assert (held(), counted()) == (0, 10)


def test_a_reservation_whose_answer_was_lost_is_made_once(tracker: Make, between: Interposer):
    mine = tracker(policy="strict", base_url=between.url)
    mine.standing()
    between.replies = [Reply(502, PAGE, lets_through=True)]
    mine.use(80, estimate=100)
    assert (UsageReservation.objects.count(), held()) == (1, 100)
    mine.flush()
    assert (held(), counted()) == (0, 80)


def test_a_cancellation_whose_answer_was_lost_is_made_again(tracker: Make, between: Interposer):
    mine = tracker(policy="strict", base_url=between.url)
    with pytest.raises(Failed):
        mine.use(Failed(), estimate=100)
    between.replies = [Reply(502, PAGE, lets_through=True)]
    with pytest.raises(ServerError):
        mine.flush()
    mine.flush()
    assert (held(), counted(), UsageReservation.objects.get().status) == (0, 0, "cancelled")


def test_where_nobody_listens_uses_wait_and_those_that_must_ask_do_not_begin(tracker: Make):
    nowhere = f"http://127.0.0.1:{free_port()}"
    offline = tracker(policy="optimistic", base_url=nowhere)
    offline.use(10, estimate=10)
    with pytest.raises(Unreachable):
        offline.flush()
    with pytest.raises(QuotaUnavailable):
        tracker(policy="strict", base_url=nowhere).use(1, estimate=1)
    assert offline.report().pending == 1
    assert tracker().flush().sent == 1
    assert counted() == 10


def test_a_key_that_is_revoked_and_replaced_loses_nothing(tracker: Make, secret: str):
    tokens = [secret]
    mine = tracker(policy="optimistic", token=lambda: tokens[-1])
    mine.use(10, estimate=10)
    ProducerKey.objects.update(revoked_at=Now())
    with pytest.raises(NotAuthenticated) as refused:
        mine.flush()
    assert refused.value.code == "invalid_key"
    tokens.append(key_for("acme", scopes=["read"]))
    with pytest.raises(NotAllowed) as too_narrow:
        mine.flush()
    assert (too_narrow.value.code, too_narrow.value.details["needed"]) == ("missing_scope", "usage")
    tokens.append(key_for("acme", scopes=["usage"]))
    assert mine.flush().sent == 1
    assert counted() == 10


def test_a_project_without_an_allowance_keeps_what_it_is_told_later(tracker: Make):
    Allowance.objects.all().delete()
    mine = tracker(policy="optimistic")
    mine.use(10, estimate=10)
    with pytest.raises(NotFound) as refused:
        mine.flush()
    assert refused.value.code == "no_allowance"
    with pytest.raises(NotFound):
        tracker(policy="strict").use(1, estimate=1)
    make_allowance("acme", unit="tokens", quota=QUOTA)
    assert mine.flush().sent == 1
    assert counted() == 10


def test_a_key_that_asks_too_often_is_told_when_to_come_back_and_its_uses_wait(tracker: Make):
    mine = tracker(policy="optimistic", token=key_for("acme", scopes=["usage"], requests_per_minute=1))
    mine.use(10, estimate=10)
    mine.flush()
    mine.use(20, estimate=20)
    with pytest.raises(TooManyRequests) as refused:
        mine.flush()
    assert 0 < (refused.value.retry_after or 0) <= 61
    assert tracker().flush().sent == 1
    assert counted() == 30


def test_while_the_servers_database_is_away_uses_wait_and_then_count(server: EmbeddedServer, tmp_path: Path):
    make_allowance("acme", unit="tokens", quota=QUOTA)
    token = key_for("acme", scopes=["usage"])
    options = {"token": token, "path": tmp_path / "outbox", "background": False, "user_id": USER}
    with web_process() as (address, _), Both(UsageTracker, address, policy="optimistic", **options) as mine:
        mine.use(10, estimate=10)
        server.stop("immediate")
        with pytest.raises(ServerError) as refused:
            mine.flush()
        assert (refused.value.status, refused.value.code) == (503, "database_unavailable")
        assert (refused.value.retry_after, mine.report().pending) == (5, 1)
        bring_back(server)
        wait_for(lambda: flushed(mine), what="the server's return")
        assert counted() == 10


def flushed(tracker: Both) -> bool:
    try:
        return bool(tracker.flush().sent)
    except ServerError:  # its pool still holds a connection that died
        return False
