"""Whether a saturated lane uses exactly its quota, delays no other lane, and serves its users equally."""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from contextlib import ExitStack

from django.db.models import Avg, Max

from bench.harness.handlers import STAMP
from bench.harness.limits import never_binding
from bench.harness.processes import cluster
from bench.harness.report import commit_milliseconds, percentile
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from tests.support.processes import wait_for
from tests.support.sandbox import running_sandbox
from tests.support.saturation import (
    SERVICE,
    Account,
    Judgement,
    Quota,
    flood,
    judge,
    open_accounts,
    set_limits,
    set_quota,
)

# A lane for each window mode of a provider, each at its own provider; the first lane has the deep backlog.
DEPTHS = {"sliding": 100_000, "aligned": 5_000, "anchored": 5_000}
LANES = {mode: Account(f"saturated-{mode}", "only") for mode in DEPTHS}
# Users of one project, at another provider. The project's window is full, and the users' own windows nearly are.
SHARED = [Account("shared", f"u{number}") for number in range(7)]
SHARED_DEPTH = 5_000
WINDOW_SECONDS = 10
FULL_WINDOW_SECONDS = 60
LATE_SECONDS = 0.15  # how much later than others a call may arrive; with a tenth more, the target would be missed
WINDOWS = 3.5  # any three whole windows in this time are judged
EVERY_SECONDS = 0.1
WARM_UP = 10
ANSWER_SECONDS = 20.0
ALLOW_LOOPBACK = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on"}


def measure(session: Session) -> None:
    report = session.report
    window = FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS
    quotas = {mode: Quota(mode, window, late_seconds=LATE_SECONDS) for mode in DEPTHS}
    seconds = WINDOWS * window
    commits: list[float] = []
    alone = _alone(session, min(seconds, 30.0), commits)
    beside, judgements, by_user, (deferrals, retries) = _beside(session, quotas, seconds, commits)
    ratio = percentile(beside, 0.99) / percentile(alone, 0.99)
    report.metric("free_lane_p99_ratio", ratio, "free lane's p99, with / without backlog", "target: at most 1.2")
    for name, delays in (("with", beside), ("without", alone)):
        p50, p99 = percentile(delays, 0.5), percentile(delays, 0.99)
        report.figure(f"free lane {name} the backlog, p50 / p99", f"{p50:.2f} / {p99:.2f} ms", f"{len(delays)} jobs")
    p50, p99 = percentile(commits, 0.5), percentile(commits, 0.99)
    report.figure("a durable commit, p50 / p99", f"{p50:.2f} / {p99:.2f} ms", "for reference")
    for mode, found in judgements.items():
        text = f"{found.above_quota} above quota, {found.utilisation:.1%} used"
        report.figure(f"{mode} windows", text, f"{found.calls:,} calls; {DEPTHS[mode]:,} jobs waited")
    least = min(found.utilisation for found in judgements.values())
    above = sum(found.above_quota for found in judgements.values())
    note = f"target: at least 0.96; any three consecutive windows of {window} s"
    report.metric("utilisation_min", least, "provider's quota used, least", note)
    report.metric("over_quota_calls", above, "calls above the quota", "target: 0; the provider's count")
    calls = ", ".join(str(count) for count in sorted(by_user.values()))
    least_to_most = min(by_user.values()) / max(by_user.values())
    report.metric(
        "users_least_to_most", least_to_most, "calls of users, least / most", f"target: at least 0.9; {calls}"
    )
    report.metric(
        "deferrals_per_job", deferrals, "deferrals a job", f"target: at most 1.5; most retries of a job: {retries}"
    )


def _alone(session: Session, seconds: float, commits: list[float]) -> list[float]:
    with session.databases.copy("free_lane", _seed_free) as url, cluster(url, environ=ALLOW_LOOPBACK):
        commits += commit_milliseconds(url)
        return _free_lane(seconds)


def _beside(
    session: Session, quotas: dict[str, Quota], seconds: float, commits: list[float]
) -> tuple[list[float], dict[str, Judgement], Counter[str], tuple[float, int]]:
    with ExitStack() as stack:
        providers = {mode: stack.enter_context(running_sandbox()) for mode in DEPTHS}
        url = stack.enter_context(session.databases.copy(f"lanes_{sum(DEPTHS.values()) + SHARED_DEPTH}", _seed_lanes))
        for mode, quota in quotas.items():
            set_quota(providers[mode], quota)
            open_accounts([LANES[mode]], url=providers[mode].url)
        shared = stack.enter_context(running_sandbox())
        set_quota(shared, quotas["sliding"])
        open_accounts(SHARED, url=shared.url)
        set_limits(quotas["sliding"], algorithm="sliding_window")
        stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
        wait_for(
            lambda: all(sandbox.counters()["received"] for sandbox in providers.values()), what="every lane's calls"
        )
        begun = time.time()
        commits += commit_milliseconds(url)
        delays = _free_lane(seconds)
        time.sleep(max(0.0, begun + seconds - time.time()))
        until = time.time()
        judgements = {
            mode: judge(providers[mode].calls(), quota, until=until, limit=quota.per_user)
            for mode, quota in quotas.items()
        }
        totals = Job.objects.filter(service=SERVICE).aggregate(Avg("deferral_count"), Max("retry_count"))
        by_user = Counter(str(call["user"]) for call in shared.calls() if call["accepted"] and call["at"] >= begun)
    return delays, judgements, by_user, (totals["deferral_count__avg"], totals["retry_count__max"])


def _free_lane(seconds: float) -> list[float]:
    """Submit to the lane that has room; return the milliseconds from each submission's return to its handler's call."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(ANSWER_SECONDS)
        submitted: dict[int, int] = {}
        begun: dict[int, int] = {}
        due = time.monotonic()
        for number in range(WARM_UP + round(seconds / EVERY_SECONDS)):
            time.sleep(max(0.0, due - time.monotonic()))
            due += EVERY_SECONDS
            payload = {"number": number, "port": ear.getsockname()[1]}
            submit_job(JobSpec(kind="bench.stamp", payload=payload), project_id=PROJECT, actor="bench")
            submitted[number] = time.monotonic_ns()
            while select.select([ear], [], [], 0)[0]:  # the socket buffers some 250 messages and drops the rest
                _note(ear, begun)
        while len(begun) < len(submitted):
            _note(ear, begun)
    return [max(0, begun[number] - submitted[number]) / 1e6 for number in list(submitted)[WARM_UP:]]


def _note(ear: socket.socket, begun: dict[int, int]) -> None:
    number, at = STAMP.unpack(ear.recv(STAMP.size))
    begun[number] = at


def _seed_free() -> None:
    one_project()
    never_binding()


def _seed_lanes() -> None:
    _seed_free()
    set_limits(Quota("sliding", WINDOW_SECONDS))
    open_accounts([*LANES.values(), *SHARED], url="http://127.0.0.1:9")
    flood(SHARED, SHARED_DEPTH)
    for mode, depth in DEPTHS.items():
        flood([LANES[mode]], depth)


if __name__ == "__main__":
    run("lanes", measure)
