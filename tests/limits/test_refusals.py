"""What providers refuse, for real executors: no attempt is spent, and the sandbox's ledger tells how often it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from jobs.models import DeadLetter, Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.states import JobState
from jobs.testing import drain
from queueops.tenancy.models import Project
from ratelimits.limits import catalogue
from ratelimits.models import Limit, LimitOverride, QuotaAlert
from ratelimits.tuning.limits import create_limit
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.documents import PROJECT, Model, document
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox
from tests.support.saturation import Account, flood, lift_limits, open_accounts

SERVICE = "http:127.0.0.1"


class Trial(NamedTuple):
    """So many jobs against a quota of `calls` in a window; `hint`: how the provider says when to come back."""

    jobs: int
    calls: int
    window_seconds: float
    hint: str

    def begin(self, sandbox: Sandbox) -> None:
        sandbox.turn(quota={"calls": self.calls, "window_seconds": self.window_seconds}, retry_after=self.hint)
        urls = [sandbox.row_url("s", str(number)) for number in range(self.jobs)]
        lines = [{"kind": "http.request", "payload": {"method": "PUT", "url": url, "json": 1}} for url in urls]
        submit_batch(lines, project_id="acme", actor="key:test")


@pytest.fixture(autouse=True)
def project(transactional_db: None) -> Iterator[Project]:
    catalogue.forget()
    yield Project.objects.create(pk=PROJECT, name="Acme")
    catalogue.forget()


def ended() -> set[tuple[str, int]]:
    return set(Job.objects.filter(project="acme").values_list("status", "retry_count"))


@pytest.mark.parametrize(
    "trial",
    [
        Trial(70, 30, 2, "seconds"),
        pytest.param(Trial(90, 30, 2, "seconds"), marks=pytest.mark.soak),
        pytest.param(Trial(602, 300, 60, "none"), marks=pytest.mark.soak),
    ],
)
def test_without_any_limit_all_jobs_end_well_and_one_is_prepared(sandbox: Sandbox, trial: Trial, figures):
    trial.begin(sandbox)
    drain(seconds=1200)
    assert ended() == {(JobState.COMPLETED, 0)}
    refused = len(sandbox.calls(status=429))
    limit = Limit.objects.get(service=SERVICE)
    figures(f"{trial.jobs} jobs without a limit: {refused} refused; {limit.capacity:g} a minute prepared")
    assert refused > 0
    assert limit.shadow
    alert = QuotaAlert.objects.get(kind="unlimited", resolved_at=None)
    assert limit.name in alert.message
    assert alert.figures["proposed_capacity"] == limit.capacity


@pytest.mark.parametrize(
    "trial",
    [
        Trial(80, 30, 2, "seconds"),
        pytest.param(Trial(120, 30, 2, "seconds"), marks=pytest.mark.soak),
        pytest.param(Trial(602, 300, 60, "none"), marks=pytest.mark.soak),
    ],
)
def test_a_limit_twice_too_high_slows_down_and_spends_no_attempt(sandbox: Sandbox, trial: Trial, figures):
    shape = {"name": "http", "service": SERVICE, "scope": "project", "window_seconds": trial.window_seconds}
    create_limit({**shape, "capacity": 2 * trial.calls}, actor="user:1")
    trial.begin(sandbox)
    drain(seconds=1200)
    refused = len(sandbox.calls(status=429))
    figures(f"{trial.jobs} jobs under a limit twice too high: {refused} refused")
    assert ended() == {(JobState.COMPLETED, 0)}
    assert 0 < refused < trial.jobs
    assert QuotaAlert.objects.filter(kind="exceeded").exists()


def test_a_cap_that_is_learned_for_a_project_is_its_own(sandbox: Sandbox, ledger: Ledger, figures):
    caps = {"small": 4, "large": 8}
    # Not aligned to the clock: as many again would be accepted where the test is amid a full minute.
    quota = {"writes_per_user": None, "writes_of_projects": caps, "window_mode": "sliding"}
    sandbox.turn(google_sheets=quota)
    lift_limits()
    shape = {"name": "writes", "service": "google-sheets", "call_type": "write", "scope": "project"}
    limit = create_limit({**shape, "capacity": 300, "learns_caps": True}, actor="user:1").limit_id
    for project in caps:
        open_accounts([Account(project, "u0")], url=sandbox.url)
        flood([Account(project, "u0")], 12)
    with cluster(ledger):
        wait_for(lambda: LimitOverride.objects.count() == len(caps), what="both caps")
    assert dict(LimitOverride.objects.values_list("key", "capacity")) == {"project:small": 4, "project:large": 8}
    assert Limit.objects.get(pk=limit).capacity == 300
    accepted = Counter(call["project"] for call in sandbox.calls(accepted=True))
    figures(f"accepted of 12 each: {dict(accepted)}; {len(sandbox.calls(status=429))} refused")
    assert accepted == caps
    assert set(Job.objects.values_list("retry_count", flat=True)) == {0}


@pytest.mark.matrix
def test_a_call_that_can_never_fit_ends_with_its_figures_and_holds_up_nobody(sandbox: Sandbox, figures):
    model = Model("gemini", 3, late_seconds=0.5)
    model.set_up(sandbox)
    sandbox.turn(gemini={"token_factor": 1.3})
    submit_batch([model.line(document(1_000, seed=n)) for n in range(12)], project_id=PROJECT, actor="key:test")
    drain(seconds=60)
    too_large = model.line(document(24_000, seed=99))  # 31,200 of 30,000, as the provider counts
    large = submit_job(JobSpec.model_validate(too_large), project_id=PROJECT, actor="key:test").id
    healthy = [model.line(document(2_000, seed=100 + n)) for n in range(30)]
    submit_batch(healthy, project_id=PROJECT, actor="key:test")
    drain(seconds=90)
    letter = DeadLetter.objects.get()
    assert (letter.job_id, letter.error_code) == (large, "limit_rejected")
    assert "31,2" in letter.error_message
    assert Job.objects.filter(status=JobState.COMPLETED, retry_count=0).count() == 42
    refused = sandbox.calls(status=429)
    figures(f"{len(refused)} refused; {letter.error_message}")
    assert len(refused) <= 3
    alert = QuotaAlert.objects.filter(kind="exceeded", message__contains="can never fit").get()
    assert str(large) in alert.message
