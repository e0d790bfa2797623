"""Far more calls than a provider allows, for real executors and the real sandbox, judged from the provider's ledger."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID, uuid5

from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch, submit_job
from queueops.core.notify import Channel, notify
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.algorithms.token_bucket import TokenBucket, safe_bucket
from ratelimits.limits import catalogue
from ratelimits.limits.defaults import default_fields
from ratelimits.models import Limit
from ratelimits.tuning.limits import create_limit
from tests.support.sandbox import Sandbox

SERVICE = "google-sheets"
KIND = "google_sheets.values_update"
MODES = ("aligned", "sliding", "anchored")
CALLS_PER_PROJECT = 300  # a minute, as the service's own quotas
CALLS_PER_USER = 60
NAMES = UUID("5f0c6f9e-1f60-4a53-9f0c-1f1f5a0d7c11")
SUBMITTER = "key:flood"

Algorithm = Literal["token_bucket", "sliding_window"]


@dataclass(frozen=True, slots=True)
class Quota:
    """
    What the provider allows in one window, and how it counts.

    `late_seconds`: how much later than others a call may arrive at it. It does not shrink with the window, so it
    weighs more the shorter the window is.
    """

    mode: str
    window_seconds: float
    per_project: int = CALLS_PER_PROJECT
    per_user: int = CALLS_PER_USER
    late_seconds: float = 0.05

    def share(self, algorithm: Algorithm) -> float:
        """Return the part of the project's quota that a limit of these figures can let through."""
        if algorithm == "token_bucket":
            return self.bucket().rate * self.window_seconds / self.per_project
        return self.window_seconds / (self.window_seconds * 61 / 60 + self.late_seconds)

    def bucket(self) -> TokenBucket:
        """Return the default bucket for the project's quota, less what late arrivals could add to a window."""
        return safe_bucket(self.per_project, window_seconds=self.window_seconds, slack_seconds=self.late_seconds)


@dataclass(frozen=True, slots=True)
class Account:
    """One user of a project, with a credential that makes the provider count by exactly these two."""

    project: str
    user: str

    @property
    def user_id(self) -> UUID:
        return uuid5(NAMES, f"{self.project}/{self.user}")

    @property
    def credential(self) -> str:
        return f"{self.project}-{self.user}"


def accounts(projects: int = 5, users: int = 50) -> list[Account]:
    """Return so many users in all, spread over the projects."""
    return [Account(f"p{number % projects}", f"u{number}") for number in range(users)]


def open_accounts(wanted: Iterable[Account], *, url: str) -> None:
    """Make projects and credentials, or point them elsewhere; `url`: where their sandbox is."""
    for account in wanted:
        project, _ = Project.objects.get_or_create(
            pk=account.project, defaults={"name": account.project, "guard_percent": 0}
        )
        token = f"project:{account.project}/user:{account.user}"
        figures = {
            "service": SERVICE,
            "quota_project": account.project,
            "quota_user": account.user,
            "secret": seal({"access_token": token}),
            "base_url": url,
        }
        credential, _ = Credential.objects.update_or_create(name=account.credential, defaults=figures)
        credential.projects.add(project)


def set_quota(sandbox: Sandbox, quota: Quota) -> None:
    sandbox.turn(
        google_sheets={
            "window_mode": quota.mode,
            "window_seconds": quota.window_seconds,
            "writes_per_project": quota.per_project,
            "writes_per_user": quota.per_user,
        }
    )


def set_limits(quota: Quota, *, algorithm: Algorithm = "token_bucket") -> None:
    """
    Replace the service's limits by its defaults for writes, scaled to such a quota.

    Args:
        algorithm: Of the project's limit.
    """
    lift_limits()
    for fields in default_fields("google_sheets"):
        if fields["call_type"] == "write":
            create_limit(_scaled(fields, quota, algorithm), actor="user:1")


def _scaled(fields: dict[str, Any], quota: Quota, algorithm: Algorithm) -> dict[str, Any]:
    of_project = fields["scope"] == "project"
    allowed = quota.per_project if of_project else quota.per_user
    scaled = {**fields, "provider_quota": allowed, "window_seconds": quota.window_seconds}
    if of_project and algorithm == "token_bucket":
        bucket = quota.bucket()
        return {**scaled, "capacity": bucket.capacity, "refill_per_second": bucket.rate}
    window = {"algorithm": "sliding_window", "capacity": allowed, "refill_per_second": None}
    return {**scaled, **window, "slack_seconds": quota.late_seconds or None}


def lift_limits() -> None:
    """Take all limits of the service away."""
    Limit.objects.filter(service=SERVICE).delete()
    limits_changed()


def limits_changed() -> None:
    """Let this process and the executors read the limits again."""
    catalogue.forget()
    notify(Channel.LIMITS)


def cell_write(account: Account, *, spreadsheet: str, cell: str = "A1", value: Any = 1) -> dict[str, Any]:
    """Return the spec of a job that writes one cell."""
    return {
        "kind": KIND,
        "user_id": str(account.user_id),
        "payload": {
            "credential": account.credential,
            "spreadsheet_id": spreadsheet,
            "range": cell,
            "values": [[value]],
        },
    }


def flood(wanted: Sequence[Account], jobs: int) -> None:
    """
    Submit so many calls, a batch for each project, its users mixed.

    Each writes to a spreadsheet of its own, so that none can share a call with another.
    """
    numbers: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, account in zip(range(jobs), itertools.cycle(wanted), strict=False):
        numbers[account.project].append(cell_write(account, spreadsheet=f"s{number}"))
    for project, lines in numbers.items():
        submit_batch(lines, project_id=project, actor=SUBMITTER)


def submit_single(account: Account, *, name: str, **fields: Any) -> UUID:
    """Submit one call into the flood; its id. `name` is its spreadsheet, by which the ledger shows it."""
    spec = JobSpec.model_validate({**cell_write(account, spreadsheet=name), **fields})
    return submit_job(spec, project_id=account.project, actor=SUBMITTER).id


@dataclass(frozen=True, slots=True)
class Judgement:
    """
    What the provider says.

    Attributes:
        above_quota: Calls that it refused because of a quota.
        utilisation: The least part of a project's quota used over any three consecutive windows of the time looked at.
    """

    calls: int
    above_quota: int
    utilisation: float


def judge(calls: Sequence[Mapping[str, Any]], quota: Quota, *, until: float = math.inf, limit: int = 0) -> Judgement:
    """
    Judge the writes in a ledger.

    Args:
        calls: As `Sandbox.calls` returns them.
        until: Work waited in every project until this time of the sandbox's clock; by default until its last call.
        limit: What is used is held against this many calls a project and window; by default the project's quota.

    Raises:
        AssertionError: A project's calls do not span three windows, so nothing can be said of its use.
    """
    accepted: defaultdict[str, list[float]] = defaultdict(list)
    for call in calls:
        if call["accepted"] and call["at"] <= until:
            accepted[call["project"]].append(call["at"])
    least = min(_least_use(sorted(times), 3 * quota.window_seconds, until) for times in accepted.values())
    above = sum(call["cause"] == "provider_quota" for call in calls)
    return Judgement(len(calls), above, least / (3 * (limit or quota.per_project)))


def _least_use(times: list[float], span: float, until: float) -> int:
    """Return the fewest calls in any interval of that length from the first call on, by its fullest beginnings."""
    last = times[-1] if until == math.inf else until
    # Use is least in an interval that begins just after a call: the one that begins with it holds one more.
    counts = [bisect_right(times, at + span) - index - 1 for index, at in enumerate(times) if at + span <= last]
    assert counts, f"calls over {last - times[0]:.1f} s say nothing of intervals of {span:g} s"
    return min(counts)


def received(sandbox: Sandbox) -> int:
    """Return how many calls the provider has received: cheap enough to ask again and again."""
    return int(sandbox.counters()["received"])
