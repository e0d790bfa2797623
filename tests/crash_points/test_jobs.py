"""R10: whoever claims, carries out or tends jobs dies before or after each statement that it sends."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from jobs.features.dependencies.dependants import DependantsDuty
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.claim import quota_feedback
from jobs.services.claim.claim import promote_due
from jobs.services.finish.outcomes import Outcome, Progress
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs, reset_to_pending
from jobs.services.submit.spec import JobSpec, parse_spec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.services.upkeep.own_claims import compare_claims
from jobs.services.upkeep.upkeep import expire_waiting, rescue_lapsed
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.crash_points.worlds import AGED, DUE, FREE, ONCE, PROJECT, REPEATABLE, Queue

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("R10")]

Operation = Callable[[], object]


def claim(queue: Queue) -> Operation:
    queue.submit(REPEATABLE, ONCE)
    return queue.claim


def claim_of_what_is_new(queue: Queue) -> Operation:
    queue.submit(FREE)
    return lambda: queue.claim(new=True)


def claim_of_a_suspect(queue: Queue) -> Operation:
    queue.submit(REPEATABLE)
    for _ in range(2):
        queue.claim()
        queue.run(AGED)
        rescue_lapsed()
        queue.run(DUE)
        promote_due()
    return queue.claim_suspect


def park(queue: Queue) -> Operation:
    Limit.objects.filter(name="places").update(capacity=1)
    catalogue.forget()
    queue.submit(*[REPEATABLE] * 3)
    assert len(queue.claim()) == 1

    def find_no_room_and_park() -> None:
        assert queue.claim() == []
        queue.pump._park(time.monotonic())

    return find_no_room_and_park


def promote(queue: Queue) -> Operation:
    queue.submit(REPEATABLE, ONCE, delay_seconds=0.001)
    return promote_due


def renew(queue: Queue) -> Operation:
    jobs = queue.running(REPEATABLE, ONCE)
    return lambda: queue.renew(jobs)


def complete(queue: Queue) -> Operation:
    outcomes = [queue.succeeded(job) for job in queue.running(REPEATABLE, ONCE)]
    return lambda: queue.write(*outcomes)


def complete_and_claim(queue: Queue) -> Operation:
    outcomes = [queue.succeeded(job) for job in queue.running(REPEATABLE, ONCE)]
    queue.submit(REPEATABLE, ONCE)
    return lambda: queue.claim(outcomes)


def retry(queue: Queue) -> Operation:
    outcomes = [queue.failed(job, 408) for job in queue.running(REPEATABLE, REPEATABLE)]
    return lambda: queue.write(*outcomes)


def fail(queue: Queue) -> Operation:
    outcomes = [queue.failed(job, 400) for job in queue.running(REPEATABLE, ONCE)]
    return lambda: queue.write(*outcomes)


def hand_back(queue: Queue) -> Operation:
    outcomes = [queue.given_back(job) for job in queue.running(REPEATABLE, REPEATABLE)]
    return lambda: queue.write(*outcomes)


def go_on(queue: Queue) -> Operation:
    outcomes = [queue.given_back(job, "[1]") for job in queue.running(REPEATABLE, REPEATABLE)]
    return lambda: queue.write(*outcomes)


def set_aside(queue: Queue) -> Operation:
    outcomes = [queue.given_back(job, misfit=True) for job in queue.running(REPEATABLE)]
    return lambda: queue.write(*outcomes)


def defer(queue: Queue) -> Operation:
    refused: list[Outcome] = [queue.failed(job, 429, refused=True) for job in queue.running(REPEATABLE)]
    return lambda: queue.write(*quota_feedback.cool_down(refused, actor="executor:1"))


def several_ends(queue: Queue) -> Operation:
    ended, gone, goes_on = queue.running(REPEATABLE, ONCE, REPEATABLE)
    outcomes: list[Outcome] = [queue.succeeded(ended), queue.failed(gone, 400), queue.given_back(goes_on, "[1]")]
    return lambda: queue.write(*outcomes, notes=[Progress(goes_on, 50, "half")])


def come_late(queue: Queue) -> Operation:
    """The jobs are another's by then: id and state are what the one taken for dead expects, only the token is not."""
    late = [queue.succeeded(job) for job in queue.running(REPEATABLE, REPEATABLE)]
    queue.run(AGED)
    rescue_lapsed()
    queue.run(DUE)
    promote_due()
    queue.under_way = queue.claim()
    for job in queue.under_way:
        queue.call(job)

    def write() -> None:
        assert queue.write(*late) == {job.id for job in queue.under_way}, "a stale write was accepted"

    return write


def rescue(queue: Queue) -> Operation:
    queue.running(REPEATABLE, ONCE)
    queue.run(AGED)
    return rescue_lapsed


def expire(queue: Queue) -> Operation:
    queue.submit(REPEATABLE, ONCE)
    queue.run("UPDATE jobs_job SET expires_at = now()")
    return expire_waiting


def hand_back_what_is_not_known(queue: Queue) -> Operation:
    queue.submit(REPEATABLE, ONCE)
    queue.claim()
    executor = queue.pump.id
    return lambda: compare_claims(executor, [], begun_up_to=0)


def settle_what_had_begun(queue: Queue) -> Operation:
    """The database was put back to the moment of these calls, and their executor lives on."""
    jobs = queue.running(REPEATABLE, ONCE)
    queue.took.update((job.holder, 0) for job in jobs)  # as of what crashed: nobody knows, and it is taken back
    executor, highest = queue.pump.id, max(job.token for job in jobs)
    return lambda: compare_claims(executor, [], begun_up_to=highest)


def requeue(queue: Queue) -> Operation:
    queue.write(*[queue.failed(job, 400) for job in queue.running(REPEATABLE, ONCE)])
    letters = list(DeadLetter.objects.values_list("pk", flat=True))
    return lambda: requeue_dead_letters(letters, actor="user:1")


def reset(queue: Queue) -> Operation:
    jobs = queue.running(REPEATABLE, REPEATABLE)
    return lambda: reset_to_pending([job.id for job in jobs], actor="user:1", reason="again")


def cancel(queue: Queue) -> Operation:
    jobs = [job.id for job in queue.running(REPEATABLE)] + queue.submit(ONCE)
    return lambda: cancel_jobs(jobs, actor="user:1", reason="not wanted")


def let_a_callback_go(queue: Queue) -> Operation:
    line = {"kind": REPEATABLE, "payload": {}}
    submit_batch([line, line], project_id=PROJECT, actor="key:test", on_finish=parse_spec(line))
    jobs = queue.claim()
    for job in jobs:
        queue.call(job)
    queue.write(*map(queue.succeeded, jobs))
    return lambda: DependantsDuty().do()


def submit(_: Queue) -> Operation:
    return lambda: submit_job(
        JobSpec(kind=REPEATABLE, payload={}, idempotency_key="one"), project_id=PROJECT, actor="key:test"
    )


def end_late_and_recover(queue: Queue) -> None:
    """The executor of what was under way lives; if it was taken away, it finds out when it writes what became of it."""
    queue.write(*map(queue.succeeded, queue.under_way))
    queue.recover()


def let_go_and_recover(queue: Queue) -> None:
    DependantsDuty().do()
    queue.recover()
    callback = Job.objects.get(batch=None)
    assert JobEvent.objects.filter(job_id=callback.pk, data__operation="waited").count() == 1, "it was let go twice"


def ask_again_and_recover(queue: Queue) -> None:
    submit(queue)()
    queue.recover()
    assert Job.objects.count() == 1


# With how many points there are, before and after each statement.
POINTS: dict[Callable[[Queue], Operation], int] = {
    claim: 42,
    claim_of_what_is_new: 22,
    claim_of_a_suspect: 30,
    park: 70,
    promote: 4,
    renew: 8,
    complete: 28,
    complete_and_claim: 52,
    retry: 22,
    fail: 24,
    hand_back: 22,
    go_on: 28,
    set_aside: 30,
    defer: 42,
    several_ends: 36,
    come_late: 22,
    rescue: 30,
    expire: 8,
    hand_back_what_is_not_known: 22,
    settle_what_had_begun: 30,
    requeue: 34,
    reset: 10,
    cancel: 10,
    submit: 10,
    let_a_callback_go: 10,
}
RECOVERED_BY = {
    come_late: end_late_and_recover,
    reset: end_late_and_recover,
    cancel: end_late_and_recover,
    submit: ask_again_and_recover,
    let_a_callback_go: let_go_and_recover,
}


@pytest.mark.parametrize("operation", POINTS, ids=lambda one: one.__name__)
def test_whoever_works_on_jobs_may_die_anywhere(operation: Callable[[Queue], Operation], queue: Queue, figures):
    case = queue.case(operation, RECOVERED_BY.get(operation))
    figures(case.crash_everywhere(at_least=POINTS[operation]))
