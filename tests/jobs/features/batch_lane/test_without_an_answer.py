"""What a provider closes without an answer: at most one batch more, booked as unknown, told, and settled when known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobs.features.batch_lane.operate import settle_batches
from jobs.features.batch_lane.watch import watch_provider_batches
from jobs.models import Job, ProviderBatch
from queueops.audit.models import AuditEntry
from ratelimits.models import BudgetPeriod, Price, QuotaAlert, Spend
from ratelimits.money import budgets, prices
from ratelimits.money.save_budget import create_budget
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

SOON = {"processing": {"mode": "fixed", "seconds": 0.05}}
PRICES = {"input_tokens": 1, "output_tokens": 4}  # micro-units a token


@pytest.fixture(autouse=True)
def own_prices(db):
    since = datetime(2026, 1, 1, tzinfo=UTC)
    for provider in ("openai", "gemini", "anthropic"):
        for unit, amount in PRICES.items():
            Price.objects.create(
                provider=provider, model="small-1", unit=unit, via="batch", amount=amount * 10**6, valid_from=since
            )
    prices.forget()
    budgets.forget()
    yield
    prices.forget()
    budgets.forget()


def in_an_hour() -> datetime:
    return timezone.now() + timedelta(hours=1)


def unknown() -> list[int | None]:
    return list(Spend.objects.filter(kind="unknown").order_by("pk").values_list("money", flat=True))


@pytest.mark.parametrize("provider", ["openai", "gemini", "anthropic"])
def test_a_line_without_an_answer_goes_once_more_by_batch_then_live_and_is_booked_each_time(lane, sandbox, provider):
    sandbox.turn(batches=SOON | {"lost_line_rate": 1})
    lane.credential(provider)
    create_budget("acme", {"name": "all", "amount": 10**9, "period": "total"}, actor="user:1")
    lane.submit(2, provider=provider)
    first = lane.tend_until_closed()
    assert (first.state, first.unanswered, first.handed_back) == ("completed", 2, 0)
    assert first.missing >= 5, "it was asked for the results that its counts tell of"
    assert len(unknown()) == 2
    assert list(Job.objects.values_list("status", "via", "retry_count").distinct()) == [("retried", "batch", 0)]
    second = lane.tend_until_closed()
    assert second.unanswered == 2
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists(), "they go live"
    lane.tend()
    assert ProviderBatch.objects.count() == 2
    booked = unknown()
    assert len(booked) == 4
    assert all(booked)
    period = BudgetPeriod.objects.get()
    assert (period.held, period.spent) == (0, sum(money or 0 for money in booked))
    [billed] = sandbox.billing()["billed"]
    paid = billed["prompt_tokens"] * PRICES["input_tokens"] + billed["output_tokens"] * PRICES["output_tokens"]
    assert paid <= period.spent, "no more was billed than is booked"
    watch_provider_batches()
    alerts = QuotaAlert.objects.filter(kind="provider_batch", resolved_at=None)
    assert {alert.subject for alert in alerts} == {str(first.pk), str(second.pk)}
    assert "without an answer to 2 of its 2 lines" in alerts[0].message
    assert bool(first.files) == (provider == "openai")
    assert not first.is_kept, "nothing is deleted of what the provider calls done"


def test_without_a_budget_what_may_be_billed_is_in_the_ledger_all_the_same(lane, sandbox):
    sandbox.turn(batches=SOON | {"malformed_line_rate": 1})
    lane.credential()
    lane.submit(3)
    batch = lane.tend_until_closed()
    assert (batch.unanswered, batch.malformed_lines) == (3, 3)
    assert len(unknown()) == 3
    assert all(unknown())


@pytest.mark.parametrize("lines", [1, 5])
def test_a_result_without_a_key_is_given_to_no_job_whatever_its_place(lane, sandbox, lines):
    sandbox.turn(batches=SOON | {"results_in_order": True}, gemini={"batch_keys": False})
    lane.credential("gemini")
    lane.submit(lines, provider="gemini")
    batch = lane.tend_until_closed()
    assert (batch.lines, batch.succeeded, batch.unanswered, batch.malformed_lines) == (lines, 0, lines, lines)
    assert len(unknown()) == lines
    assert not Job.objects.exclude(status="retried", retry_count=0, result=None).exists()


def test_what_the_provider_says_it_did_not_carry_out_is_free(lane, sandbox):
    sandbox.turn(batches=SOON | {"expires_at_share": 0.5})
    lane.credential()
    lane.submit(8)
    batch = lane.tend_until_closed()
    assert (batch.state, batch.unanswered) == ("expired", 0)
    assert batch.handed_back > 0
    assert unknown() == []


def test_one_404_after_other_faults_is_no_end_and_the_list_is_asked_as_well(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 30}, "status_error_rate": 1})
    lane.credential()
    lane.submit(2)
    for _ in range(7):
        lane.tend()
    batch = ProviderBatch.objects.get()
    assert (batch.faults, batch.missing) == (6, 0)
    ProviderBatch.objects.update(provider_id="batch_nobody_knows")
    sandbox.turn(batches={"status_error_rate": 0})
    lane.tend()
    batch.refresh_from_db()
    assert (batch.state, batch.missing) == ("open", 1), "one 404 says little"

    def is_closed() -> bool:
        lane.tend()
        return not ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED).exists()

    wait_for(is_closed, what="the end of what is gone")
    gone = ProviderBatch.objects.get()
    assert (gone.state, gone.unanswered) == ("failed", 2)
    assert gone.missing >= 5
    assert len(unknown()) == 2
    assert not gone.is_kept, "nothing is deleted that may tell what it cost"


def test_results_of_a_batch_that_was_given_up_stay_at_the_provider_until_people_settle_it(lane, sandbox):
    sandbox.turn(batches=SOON)
    lane.credential()
    lane.submit(2)
    lane.tend()
    ProviderBatch.objects.update(live_at=timezone.now() - timedelta(days=2), look_at=in_an_hour(), faults=3)
    lane.tend(now=False)
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.unanswered) == ("failed", 2)
    assert len(unknown()) == 2
    ProviderBatch.objects.update(look_at=timezone.now())
    lane.tend(now=False)
    assert not sandbox.calls(method="DELETE")
    settle_batches([batch.pk], billed=True, actor="user:1")
    lane.tend(now=False)
    assert sandbox.calls(method="DELETE"), "nobody needs them any more"


def test_an_answer_that_comes_after_all_and_counts_settle_what_was_unknown(lane, sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 3600}})
    lane.credential()
    lane.submit(4)
    lane.tend()
    lane.tend()
    ProviderBatch.objects.update(live_at=timezone.now() - timedelta(hours=2), looked_at=timezone.now())
    lane.tend(now=False)
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.unanswered) == ("open", 4)
    assert len(unknown()) == 4
    batch = lane.tend_until_closed()
    assert (batch.unanswered, batch.handed_back) == (0, 4), "it was called back before any was done"
    assert unknown() == []
    assert set(Spend.objects.values_list("kind", "money")) == {("call", 0)}


@pytest.mark.parametrize("billed", [False, True])
def test_people_settle_what_is_unknown_and_the_audit_trail_tells(lane, sandbox, billed):
    sandbox.turn(batches=SOON | {"lost_line_rate": 1})
    lane.credential()
    create_budget("acme", {"name": "all", "amount": 10**9, "period": "total"}, actor="user:1")
    lane.submit(2)
    batch = lane.tend_until_closed()
    spent = BudgetPeriod.objects.get().spent
    assert spent > 0
    assert settle_batches([batch.pk], billed=billed, actor="user:1", reason="seen on the bill") == {batch.pk}
    assert settle_batches([batch.pk], billed=billed, actor="user:1") == set(), "once"
    assert unknown() == []
    assert ProviderBatch.objects.get().is_kept, "what is left at the provider is deleted now"
    assert BudgetPeriod.objects.get().spent == (spent if billed else 0)
    entry = AuditEntry.objects.get(action="settle_provider_batch")
    assert (entry.moved, (entry.before or {})["unknown_money"], entry.after) == (2, spent, {"billed": billed})
    watch_provider_batches()
    assert not QuotaAlert.objects.filter(kind="provider_batch", resolved_at=None).exists()


def test_results_of_jobs_that_are_not_here_stay_when_people_settle_the_rest(lane, sandbox):
    sandbox.turn(batches=SOON | {"lost_line_rate": 1})
    lane.credential()
    lane.submit(2)
    batch = lane.tend_until_closed()
    ProviderBatch.objects.update(unknown_lines=1, look_at=timezone.now())  # as after a restore
    settle_batches([batch.pk], billed=True, actor="user:1")
    lane.tend(now=False)
    assert not sandbox.calls(method="DELETE")


def test_the_page_tells_what_is_unknown_and_settles_it(lane, sandbox, admin_client: Client):
    sandbox.turn(batches=SOON | {"lost_line_rate": 1})
    lane.credential()
    lane.submit(2)
    batch = lane.tend_until_closed()
    address = f"/admin/jobs/providerbatch/{batch.pk}/change/"
    page = admin_client.get(address).content.decode()
    assert "what they cost is not known" in page
    assert "Settle what is unknown" in page
    assert "Cancel batch" not in page
    settle = f"/admin/jobs/providerbatch/{batch.pk}/settle/"
    assert "This field is required" in admin_client.post(settle, {"confirmed": "1", "reason": "x"}).content.decode()
    admin_client.post(settle, {"confirmed": "1", "reason": "seen on the bill", "billed": "no"})
    assert unknown() == []
    assert "Settle what is unknown" not in admin_client.get(address).content.decode()
