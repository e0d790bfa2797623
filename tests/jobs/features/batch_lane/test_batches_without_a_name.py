"""Anthropic's list tells no id of ours: what is taken for whose, until the results name it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from jobs.features.batch_lane.steps.calls import CallLoop
from jobs.features.batch_lane.watch import watch_provider_batches
from jobs.handlers.errors import ProviderError
from jobs.models import BatchSearch, Job, ProviderBatch
from jobs.services.operate.job_actions import cancel_jobs
from ratelimits.models import Price, QuotaAlert, Spend
from ratelimits.money import budgets, prices
from tests.jobs.features.batch_lane.conftest import Lane
from tests.support.processes import wait_for
from tests.support.provider_batches import make_round, tend_interrupted
from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {"processing": {"mode": "fixed", "seconds": 60}}


def lose_the_call() -> None:
    raise ProviderError(None, "the connection broke", code="connection_broken", outcome="unknown")


@pytest.fixture
def priced(db) -> Iterator[None]:
    since = timezone.now() - timedelta(days=30)
    for unit in ("input_tokens", "output_tokens"):
        Price.objects.create(
            provider="anthropic", model="small-1", unit=unit, via="batch", amount=4_000_000, valid_from=since
        )
    prices.forget()
    budgets.forget()
    yield
    prices.forget()
    budgets.forget()


def kinds_of_costs() -> list[str]:
    return sorted(Spend.objects.values_list("kind", flat=True))


def let_lines_go_live(lane: Lane) -> ProviderBatch:
    """Nobody could ask for the batch until its lines went live at the deadline."""
    ProviderBatch.objects.update(live_at=timezone.now() - timedelta(hours=2), looked_at=timezone.now())
    lane.tend(now=False)
    return ProviderBatch.objects.get()


@pytest.fixture
def two_unanswered(lane: Lane, sandbox: Sandbox) -> Callable[..., tuple[ProviderBatch, ProviderBatch]]:
    """Ask for two batches of as many lines without an answer: the first was made, and the second was not."""

    def ask(**knobs: object) -> tuple[ProviderBatch, ProviderBatch]:
        sandbox.turn(batches={"lost_create_rate": 1} | knobs)
        lane.credential("anthropic")
        lane.submit(3, provider="anthropic")
        lane.tend(now=False)
        made = ProviderBatch.objects.get()
        lane.submit(3, provider="anthropic", prompt="of the other batch")
        tend_interrupted(lose_the_call)
        sandbox.turn(batches={"lost_create_rate": 0} | knobs)
        return made, ProviderBatch.objects.exclude(pk=made.pk).get()

    return ask


def test_what_may_be_of_two_is_left_until_its_results_tell(lane, sandbox, two_unanswered):
    two_unanswered(**LONG)
    lane.tend()
    for batch in ProviderBatch.objects.all():
        assert (batch.state, batch.creations, batch.provider_id) == ("creating", 1, "")
        assert "its results will tell" in batch.error
    assert sandbox.billing()["batches"]["made"] == 1


def test_each_of_two_gets_its_own_batch_once_the_results_tell(lane, sandbox, two_unanswered):
    made, unmade = two_unanswered(**LONG)
    lane.tend()
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 0}})  # of the batch that is made anew
    sandbox.move_clock(seconds=60)
    lane.tend_until_closed()
    made.refresh_from_db()
    unmade.refresh_from_db()
    assert (made.state, made.creations, made.succeeded) == ("completed", 1, 3)
    assert (unmade.state, unmade.creations, unmade.succeeded) == ("completed", 2, 3)
    assert sandbox.billing()["prompts_paid_again"] == 0


def test_a_batch_whose_results_name_another_is_given_to_it(lane, sandbox, two_unanswered):
    made, unmade = two_unanswered(processing={"mode": "fixed", "seconds": 0.05})
    [remote] = sandbox.batches()
    wait_for(lambda: sandbox.batches()[0]["phase"] == "completed", what="the end at the provider")
    ProviderBatch.objects.filter(pk=made.pk).update(look_at=timezone.now() + timedelta(hours=1))
    ProviderBatch.objects.filter(pk=unmade.pk).update(
        state="open", provider_id=remote["id"], found_by_count=True, look_at=timezone.now()
    )
    lane.tend(now=False)
    made.refresh_from_db()
    unmade.refresh_from_db()
    assert (made.state, made.provider_id) == ("open", remote["id"])
    assert (unmade.state, unmade.provider_id) == ("creating", "")
    assert remote["id"] in unmade.error
    lane.tend_until_closed()
    assert set(ProviderBatch.objects.values_list("state", "succeeded", "unknown_lines")) == {("completed", 3, 0)}
    assert sandbox.billing()["prompts_paid_again"] == 0


def test_what_was_found_by_its_count_alone_is_not_cancelled(lane, sandbox):
    sandbox.turn(batches=LONG | {"lost_create_rate": 1})
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    lane.tend()
    lane.tend()
    batch = ProviderBatch.objects.get()
    assert (batch.state, batch.found_by_count) == ("open", True)
    ProviderBatch.objects.update(live_at=timezone.now())
    lane.tend()
    batch.refresh_from_db()
    assert batch.cancelled_at is None
    assert "may be another's" in batch.error
    assert sandbox.batches()[0]["phase"] == "in_progress"


@pytest.mark.parametrize("ahead", [600, 0])
def test_a_batch_is_found_by_its_count_though_its_provider_has_another_time(lane, sandbox, moving_clock, ahead):
    sandbox.turn(batches=LONG | {"lost_create_rate": 1})
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    lane.tend()
    moving_clock.move(seconds=ahead)
    ProviderBatch.objects.update(created_at=F("created_at") + timedelta(seconds=600))  # else it is of before the row
    lane.tend()
    batch, made = ProviderBatch.objects.get(), 1 if ahead else 2
    assert (batch.creations, batch.found_by_count, len(sandbox.batches())) == (made, made == 1, made)


def test_of_two_that_work_at_the_provider_none_is_taken(lane, sandbox):
    sandbox.turn(batches=LONG | {"lost_create_rate": 1})
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    lane.tend()
    ProviderBatch.objects.update(provider_id="", kind="of.another.installation", provider="none")
    lane.submit(3, provider="anthropic", prompt="of the other batch")
    lane.tend(now=False)
    lane.tend()
    batch = ProviderBatch.objects.get(provider="anthropic")
    assert batch.state == "creating"
    assert "2 batches of 3 lines work there" in batch.error


def test_what_another_step_adopts_after_the_list_was_read_is_left_to_it(lane, sandbox, two_unanswered):
    made, unmade = two_unanswered(**LONG)
    [remote] = sandbox.batches()

    class Beaten(CallLoop):
        def run(self, work: Coroutine[Any, Any, Any]) -> Any:
            found = super().run(work)
            ProviderBatch.objects.filter(pk=made.pk).update(state="open", provider_id=remote["id"])
            return found

    moment = timezone.now()
    ProviderBatch.objects.filter(pk=made.pk).update(look_at=moment + timedelta(hours=1))
    ProviderBatch.objects.filter(pk=unmade.pk).update(look_at=moment, create_before=moment - timedelta(hours=1))
    beaten = Beaten()
    make_round(beaten)
    beaten.close()
    unmade.refresh_from_db()
    assert (unmade.state, unmade.creations, unmade.provider_id) == ("creating", 1, "")
    assert "is of another batch" in unmade.error


@pytest.mark.usefixtures("priced")
def test_a_batch_is_found_by_its_count_after_its_lines_went_live_and_pays_for_them(lane, sandbox):
    sandbox.turn(batches=LONG | {"lost_create_rate": 1})
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    lane.tend()
    late = let_lines_go_live(lane)
    assert (late.state, late.provider_id, late.unanswered) == ("creating", "", 3)
    assert kinds_of_costs() == ["unknown"] * 3
    lane.tend()
    found = ProviderBatch.objects.get()
    assert (found.state, found.found_by_count, found.unanswered) == ("open", True, 3)
    sandbox.move_clock(seconds=60)
    ended = lane.tend_until_closed()
    assert (ended.state, ended.unanswered, ended.dropped) == ("completed", 0, 3)
    assert kinds_of_costs() == ["call"] * 3
    assert all(Spend.objects.values_list("money", flat=True)), "the provider bills each of them"


@pytest.mark.usefixtures("priced")
def test_what_a_list_without_names_does_not_show_stays_unknown_once_its_lines_went_live(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    tend_interrupted(lose_the_call)
    assert let_lines_go_live(lane).unanswered == 3
    ended = lane.tend_until_closed()
    assert (ended.state, ended.creations, ended.unanswered) == ("cancelled", 1, 3)
    assert kinds_of_costs() == ["unknown"] * 3


@pytest.mark.usefixtures("priced")
def test_what_a_list_without_names_does_not_show_at_the_deadline_is_booked_and_told(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    tend_interrupted(lose_the_call)
    ProviderBatch.objects.update(live_at=timezone.now())
    ended = lane.tend_until_closed()
    assert (ended.state, ended.creations, ended.unanswered, ended.handed_back) == ("cancelled", 1, 3, 0)
    assert kinds_of_costs() == ["unknown"] * 3
    assert all(Spend.objects.values_list("money", flat=True)), "the provider may bill each of them"
    watch_provider_batches()
    alert = QuotaAlert.objects.get(kind="provider_batch", resolved_at=None)
    assert "without an answer to 3 of its 3 lines" in alert.message
    assert set(Job.objects.values_list("status", "retry_count")) == {("retried", 0)}


@pytest.mark.usefixtures("priced")
def test_what_a_list_without_names_does_not_show_after_a_restore_is_booked(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    tend_interrupted(lose_the_call)
    moment = timezone.now()
    BatchSearch.objects.create(
        kind="llm.generate",
        service="anthropic",
        credential="anthropic-key",
        made_before=moment,
        look_at=moment + timedelta(hours=1),
    )
    ProviderBatch.objects.update(look_at=moment, create_before=moment - timedelta(hours=1))
    lane.tend(now=False)
    ended = ProviderBatch.objects.get()
    assert (ended.state, ended.creations, ended.unanswered) == ("cancelled", 1, 3)
    assert kinds_of_costs() == ["unknown"] * 3


@pytest.mark.usefixtures("priced")
def test_what_a_list_without_names_does_not_show_is_booked_where_the_next_call_is_refused(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    tend_interrupted(lose_the_call)
    sandbox.turn(anthropic={"batch_bytes": 100})
    lane.tend()
    ended = ProviderBatch.objects.get()
    assert (ended.state, ended.unanswered, ended.handed_back) == ("failed", 3, 0)
    assert "413" in ended.error
    assert kinds_of_costs() == ["unknown"] * 3
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists(), "they go live"


@pytest.mark.usefixtures("priced")
def test_what_a_list_without_names_does_not_show_is_booked_where_its_jobs_are_cancelled(lane, sandbox):
    sandbox.turn(batches=LONG)
    lane.credential("anthropic")
    lane.submit(3, provider="anthropic")
    tend_interrupted(lose_the_call)
    cancel_jobs(list(Job.objects.values_list("pk", flat=True)), actor="user:1", reason="not wanted")
    lane.tend()
    ended = ProviderBatch.objects.get()
    assert (ended.state, ended.creations, ended.unanswered) == ("cancelled", 1, 3)
    assert kinds_of_costs() == ["unknown"] * 3
    assert sandbox.billing()["batches"]["made"] == 0
