"""Where a new job waits, whom it leaves with, and what it is taken to cost."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from jobs.handlers.registry import Cost, RunningJob, handler
from jobs.lanes import read_lane
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limiter import estimates
from ratelimits.limiter.estimates import MIN_SAMPLES, Alike, record_actuals
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.factories import make_project
from tests.jobs import merging
from tests.jobs.merging import ALONE, KIND, Piece, submit
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ADA = UUID(int=1)
GUESSES = Alike("acme", "svc", "test.guess", None)


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    merging.declare(monkeypatch)
    Limit.objects.all().delete()
    catalogue.forget()
    estimates.forget()

    @handler(kind="test.turns", service="svc", payload=Piece, user_turns=True)
    async def turns(job: RunningJob[Piece]) -> None: ...

    @handler(kind="test.guess", service="svc", payload=Piece, cost=lambda p: Cost(known=p.n, unknown=1000))
    async def guess(job: RunningJob[Piece]) -> None: ...

    @handler(
        kind="test.shared", service="svc", payload=Piece, credential=lambda p: p.option or None, model=lambda p: p.sheet
    )
    async def shared(job: RunningJob[Piece]) -> None: ...

    yield
    catalogue.forget()
    estimates.forget()


def limit(**figures):
    Limit.objects.create(**{"name": "limit", "service": "svc", "capacity": 10, **figures})
    catalogue.forget()


def test_a_job_that_nothing_counts_has_no_lane():
    limit(service="other")
    limit(name="off", enabled=False)
    assert submit(kind=ALONE).lane is None


@every_case("kind", [KIND, "test.turns"], undone=True)
def test_jobs_that_leave_together_or_take_turns_have_a_lane_without_any_limit(kind):
    assert submit(kind=kind).lane is not None


def test_a_job_of_a_limited_service_has_a_lane_that_says_whom_the_provider_counts():
    limit()
    lane = submit(kind="test.shared", sheet="large/β", spec={"user_id": ADA}).lane
    assert lane is not None
    subject = Subject("svc", "write", "acme", str(ADA), "large/β", owner="acme")
    assert read_lane(lane) == (subject, "acme", str(ADA), "")


def test_projects_that_share_a_credential_are_counted_together_and_wait_apart():
    limit()
    row = Credential.objects.create(
        name="robot", service="svc", secret=seal({"key": "x"}), quota_project="cloud", quota_user="sa"
    )
    row.projects.set([make_project("acme"), make_project("beta")])
    lanes = [submit(kind="test.shared", project=project, option="robot").lane for project in ("acme", "beta")]
    assert lanes[0] != lanes[1]
    counted = Subject("svc", "write", "cloud", "sa", "a")
    assert [read_lane(str(lane)).subject for lane in lanes] == [counted._replace(owner=one) for one in ("acme", "beta")]


def test_a_long_or_odd_coalesce_key_is_shortened_and_still_tells_jobs_apart():
    long = [submit(sheet="x" * 1000 + end).coalesce_key for end in "aab"]
    assert long[0] == long[1] != long[2]
    odd = [submit(sheet=sheet).coalesce_key for sheet in ("a#b", "a")]
    assert all(key is not None and "#" not in key and len(key) <= 400 for key in [*long, *odd])
    assert len({*long, *odd}) == 4


@every_case("kind", [ALONE, "test.turns"], undone=True)
def test_a_kind_that_does_not_coalesce_has_no_key(kind):
    assert submit(kind=kind).coalesce_key is None


@every_case(
    ("known", "learned", "cost"),
    [(50, None, 1050), (50, 30, 80), (50, 5000, 1050), (0, 30, 30), (50, 0, 50)],
    undone=True,
)
def test_what_calls_have_really_cost_lowers_the_unknown_part_alone(known, learned, cost):
    estimates.forget()
    if learned is not None:
        record_actuals([(GUESSES, float(learned))] * MIN_SAMPLES)
    job = submit(kind="test.guess", n=known)
    assert (job.cost, job.known_cost) == (cost, known)


def test_what_another_project_has_learned_changes_nothing():
    record_actuals([(GUESSES._replace(project="beta"), 5.0)] * MIN_SAMPLES)
    assert [submit(kind="test.guess", n=50, project=name).cost for name in ("acme", "beta")] == [1050, 55]


def test_a_guess_that_is_no_bound_gives_way_to_what_calls_have_really_cost(monkeypatch):
    def cost(piece: Piece) -> Cost:
        return Cost(piece.n, 1000, {"input_tokens": piece.n, "output_tokens": 1000}, is_bound=bool(piece.option))

    @handler(kind="test.open", service="svc", payload=Piece, cost=cost)
    async def guess(job: RunningJob[Piece]) -> None: ...

    alike = GUESSES._replace(kind="test.open")
    record_actuals([(alike, 5000.0)] * MIN_SAMPLES, outputs=[(alike, 4000.0)] * MIN_SAMPLES)
    found = [submit(kind="test.open", n=50, option=option) for option in ("", "bound")]
    assert [(job.cost, (job.costs or {})["output_tokens"]) for job in found] == [(5050, 4000), (1050, 1000)]


def test_a_producers_own_estimate_is_not_a_guess():
    record_actuals([(GUESSES, 30.0)] * MIN_SAMPLES)
    job = submit(kind="test.guess", n=50, spec={"cost": 700})
    assert (job.cost, job.known_cost) == (700, None)
