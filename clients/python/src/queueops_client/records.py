"""The server's answers, as frozen dataclasses. Fields that a newer server adds are in `raw`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Self
from uuid import UUID

ENDED_STATES = frozenset({"completed", "failed", "cancelled"})


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def moments(texts: Iterable[str]) -> list[datetime]:
    return [_moment(text) for text in texts]


def _id(given: str | int) -> UUID | str | int:
    try:
        return UUID(given) if isinstance(given, str) else given
    except ValueError:
        return given  # a project's name


PARSERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("id", "job", "batch", "batch_id", "user_id", "job_id", "origin", "requeued_as", "on_finish_job"), _id
    ),
    **dict.fromkeys(
        (
            "at",
            "created_at",
            "updated_at",
            "started_at",
            "finished_at",
            "scheduled_at",
            "expires_at",
            "complete_by",
            "resolved_at",
            "eta",
            "eta_earliest",
            "scheduled_until",
            "finish_at",
            "due_at",
            "begins_at",
            "ends_at",
            "next_fire_at",
            "failing_since",
            "paused_at",
            "two_signatures_until",
        ),
        _moment,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """
    Attributes:
        raw: The JSON object as it came.
    """

    raw: Mapping[str, Any]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        names = [field.name for field in fields(cls) if field.name != "raw"]
        given = {name: raw[name] for name in names if raw.get(name) is not None}
        return cls(
            raw=raw, **{name: PARSERS[name](value) if name in PARSERS else value for name, value in given.items()}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Record):
    """
    A job. Lists and the answer to a submission leave some fields None; `QueueOps.job` has them all.

    Attributes:
        created: After a submission, whether it made the job; False: the job existed already.
        outcome: After a submission, its outcome: `created`; `duplicate`: a job with its idempotency_key existed;
            `pending`: a job with its unique_key existed, and stays as it is; `replaced`: that job does the new work.
        waiting_for: Why it does not run now, in words.
        cost: Units or tokens, as estimated; `costs`: the estimate by unit, if one figure does not say all.
        complete_by: When its result is wanted.
        via: `batch`: it goes, or went, by a batch of its provider; `live`: it should have gone so, but went live; None:
            live.
        provider_batch: The last provider batch that it was a line of: id, state, provider_id.
        cost_money: What its calls cost so far, in millionths of `currency`; None: not known, or a price is missing.
        prices: What it costs live and by batch, in millionths of `currency`. If `is_used`, the usage of its last
            call is the basis; otherwise the usage of earlier calls like it is.
        ended_batch: If it is a batch's callback: the batch, its name, counts and verdict.
        takes: The values of its payload that come from other jobs' results: place, job and path of each.
    """

    id: UUID
    kind: str | None = None
    state: str | None = None
    created: bool | None = None
    outcome: str | None = None
    batch: UUID | None = None
    user_id: UUID | None = None
    service: str | None = None
    model: str | None = None
    cost: int | None = None
    costs: Mapping[str, int] | None = None
    priority: str | None = None
    held: bool | None = None
    idempotency_key: str | None = None
    unique_key: str | None = None
    tags: Sequence[str] = ()
    payload: Any = None
    result: Any = None
    stored_result: Mapping[str, Any] | None = None
    ended_batch: Mapping[str, Any] | None = None
    takes: Sequence[Mapping[str, Any]] = ()
    progress: float | None = None
    progress_message: str | None = None
    retry_count: int | None = None
    last_error_code: str | None = None
    last_error_message: str | None = None
    waiting_for: str | None = None
    origin: UUID | None = None
    scheduled_at: datetime | None = None
    expires_at: datetime | None = None
    complete_by: datetime | None = None
    via: str | None = None
    provider_batch: Mapping[str, str] | None = None
    cost_money: int | None = None
    currency: str = ""
    prices: Mapping[str, int | bool | None] | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    eta: datetime | None = None
    recheck_after_seconds: float | None = None
    cursor: int = 0
    epoch: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def failed(self) -> bool:
        """Whether it has ended without success."""
        return self.has_ended and self.state != "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Record):
    """
    A batch.

    Attributes:
        verdict: Its state in one word: waiting, held, running, succeeded, succeeded_with_failures, failed or cancelled.
        held_by: What stops it, in words, if the verdict is `held`.
        guard: The rule by which it pauses itself: when `percent` percent of its `first` first jobs fail; with `state`,
            and what was found. None: it never does.
        counts: Items by state; a requeued item counts once, as its latest job.
        held_by_outage: How many of the rate_limited items wait for an outage to end, and not for quota.
        scheduled: How many of the queued items wait for their time; `scheduled_until`: when the last of them may begin.
        progress: Percent of the items that have ended.
        eta: When it will end, by a forecast; None: nothing is known yet.
        eta_earliest: The end by its speed so far, if that differs much from the end by the limits.
        cost_money: What its jobs cost so far, in millionths of `currency`; None: not known, or a price is missing.
            Always None in lists.
        after: Ids of the jobs and batches that it waits for; `on_failure`: what happens if one of them does not
            succeed.
        on_finish_job: The job that is carried out when it ends; None: none was asked for.
        known_batches: The first batches that already had jobs of this submission, which were not made again.
    """

    id: UUID
    name: str = ""
    tags: Sequence[str] = ()
    total: int = 0
    paused: bool = False
    verdict: str = ""
    held_by: str | None = None
    guard: Mapping[str, Any] | None = None
    counts: Mapping[str, int]
    held_by_outage: int = 0
    scheduled: int = 0
    scheduled_until: datetime | None = None
    finished: int = 0
    progress: float = 0.0
    rate_per_second: float | None = None
    eta: datetime | None = None
    eta_earliest: datetime | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    after: Sequence[str] = ()
    on_failure: str | None = None
    on_finish_job: UUID | None = None
    known_batches: Sequence[str] = ()
    recheck_after_seconds: float | None = None
    cost_money: int | None = None
    currency: str = ""
    cursor: int = 0
    epoch: str = ""

    @property
    def has_ended(self) -> bool:
        return self.finished >= sum(self.counts.values())

    @property
    def failed(self) -> int:
        """How many items have ended without success."""
        return self.counts.get("failed", 0) + self.counts.get("cancelled", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedBatch(Record):
    """
    Attributes:
        duplicates: Jobs whose own idempotency_key existed already; they are not in this batch.
        pending: Jobs not made because a job with their unique_key has not ended; `replaced`: that job does their work
            now.
        errors: With `partial`, the first 1,000 lines refused: line (from 1), code, message, fields.
        idempotency_key: The key under which it was submitted.
        known: The first 1,000 lines that made no job: line (from 1), outcome, job (the one that has its key), batch.
        known_batches: The first batches that have the jobs of `known`.
    """

    id: UUID
    accepted: int = 0
    duplicates: int = 0
    pending: int = 0
    replaced: int = 0
    error_count: int = 0
    errors: Sequence[Mapping[str, Any]] = ()
    known: Sequence[Mapping[str, Any]] = ()
    known_batches: Sequence[str] = ()
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastWay(Record):
    """
    The forecast of a batch for one way, live or by batch.

    Attributes:
        price: The price, in millionths of the currency; None: some price is missing.
        price_range: at_least and at_most (None: nothing bounds it), if some jobs have too few earlier calls like them.
        finish_at: When the last job would have ended; None: not known, see `why`.
        seconds: How long until then.
    """

    price: int | None = None
    price_range: Mapping[str, int | None] | None = None
    finish_at: datetime | None = None
    seconds: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Record):
    """
    A forecast of a batch, if it were submitted now.

    Attributes:
        accepted: False: the submission would be refused because of the `rejected` lines.
        jobs: count, duplicates and by_model.
        tokens: By unit, each with known, expected and reserved.
        learned: Whether all tokens follow from earlier calls; None: no job counts tokens.
        live, batch: The batch's price and end, for each way.
        missing_prices: Each by its service, model and via.
        budgets: Budgets that have less left than the whole batch should cost live.
        binding: The limits that take time, the slowest first.
        rejected: count, and jobs, the first 100 lines that would be refused.
    """

    accepted: bool
    jobs: Mapping[str, Any]
    tokens: Mapping[str, Mapping[str, int]]
    learned: bool | None = None
    currency: str = ""
    live: ForecastWay
    batch: ForecastWay
    missing_prices: Sequence[Mapping[str, Any]] = ()
    budgets: Sequence[Mapping[str, Any]] = ()
    binding: Sequence[Mapping[str, Any]] = ()
    rejected: Mapping[str, Any]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        told = super(Forecast, cls).of(raw)
        return replace(told, live=ForecastWay.of(raw["live"]), batch=ForecastWay.of(raw["batch"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """
    The outcome of one job of a batch.

    Attributes:
        result: What its handler returned; None until it has completed, and where `stored_result` is set.
        stored_result: For a large result: its size and where it is stored; `QueueOps.result` gets it.
        last_error_code: The code of its last failed attempt; also set while it is retried.
        origin: The failed job that was requeued as this one.
    """

    id: UUID
    state: str
    result: Any = None
    stored_result: Mapping[str, Any] | None = None
    kind: str = ""
    user_id: UUID | None = None
    idempotency_key: str | None = None
    last_error_code: str | None = None
    last_error_message: str | None = None
    origin: UUID | None = None
    finished_at: datetime | None = None

    @property
    def ok(self) -> bool:
        return self.state == "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Record):
    id: UUID
    job: UUID
    batch_id: UUID | None = None
    kind: str = ""
    service: str | None = None
    payload: Any = None
    error_code: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    http_status: int | None = None
    remediation: str | None = None
    fingerprint: str | None = None
    created_at: datetime | None = None
    resolution: str | None = None
    resolved_at: datetime | None = None
    requeued_as: UUID | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire(Record):
    """
    One time at which a schedule was due.

    Attributes:
        outcome: `submitted`, `refused`, or `missed`, as the schedule's policy said.
        left_out: How many fires before it were left out.
        asked_by: Who asked for it with `run_schedule`; empty: the clock.
    """

    id: UUID
    due_at: datetime
    outcome: str
    job_id: UUID | None = None
    batch_id: UUID | None = None
    error_code: str = ""
    error_message: str = ""
    left_out: int = 0
    asked_by: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Record):
    """
    A repeated submission of a project.

    Attributes:
        jobs: Each as in its submission.
        next_fire_at: When it fires next, with its jitter; None: it does not fire any more.
        next_due: The next five times by the cron text, without jitter.
        refused_in_a_row: How many of its last fires were refused.
    """

    id: UUID
    name: str
    cron: str
    time_zone: str = "UTC"
    jobs: Sequence[Mapping[str, Any]] = ()
    missed: str = "once"
    most_missed: int | None = None
    jitter_seconds: int = 0
    ends_at: datetime | None = None
    paused: bool = False
    next_fire_at: datetime | None = None
    next_due: Sequence[datetime] = ()
    refused_in_a_row: int = 0
    last_fire: Fire | None = None
    created_at: datetime | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        told = super(Schedule, cls).of(raw)
        last = raw.get("last_fire")
        return replace(told, next_due=moments(raw.get("next_due", ())), last_fire=last and Fire.of(last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Record):
    """
    An address that gets messages about the project's ended batches and jobs.

    Attributes:
        batches: Whether it is told that batches ended.
        jobs: Which ended jobs it is told of, by `kinds`, `tags`, `any_tag`, `outcomes`, `user_id` and `batch_id`; None:
            of none.
        most_jobs: The most ended jobs in one message.
        failing_since: Since when it has accepted nothing.
        paused_because: `silent` or `gone`; empty: it is not paused.
        two_signatures_until: Until then the secret before the last change signs, too.
        secret: The secret that signs its messages; only in the answers to its creation and to a change of the secret.
    """

    id: UUID
    url: str
    enabled: bool = True
    batches: bool = True
    jobs: Mapping[str, Any] | None = None
    most_jobs: int | None = None
    failing_since: datetime | None = None
    paused_at: datetime | None = None
    paused_because: str = ""
    two_signatures_until: datetime | None = None
    secret: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery(Record):
    """
    One message to a webhook; its `id` is what the receiver gets as `webhook-id`.

    Attributes:
        event: `batch.finished`, `jobs.ended` or `webhook.test`.
        jobs_told: How many ended jobs it tells of.
        job_id: The job that sends it; `state` and `error_code` are that job's.
    """

    id: UUID
    event: str
    batch_id: UUID | None = None
    jobs_told: int = 0
    job_id: UUID | None = None
    state: str = ""
    error_code: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAgain(Record):
    """How many messages were sent again, and how many are left for the next call."""

    sent: int
    left: int
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardJob(Record):
    """An ended job that a webhook is told of. `delivery_id`: its message; None: it waits for the next one."""

    id: int
    job_id: UUID
    delivery_id: UUID | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(Record):
    """From when to when a maintenance window is open."""

    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Record):
    """
    A maintenance window: a pause by calendar, once or weekly.

    Attributes:
        scope: `project`; or `service`, `kind` or `global`, which only operators change.
        weekdays: The days on which it begins; 0 is Monday.
        since, until: What the clock in `time_zone` shows, such as 22:00:00.
        is_open: Whether it holds its work now.
        next_times: The next five times; if it is open now, that time is the first.
    """

    id: UUID
    scope: str
    key: str = ""
    reason: str = ""
    begins_at: datetime | None = None
    ends_at: datetime | None = None
    weekdays: Sequence[int] = ()
    since: str | None = None
    until: str | None = None
    time_zone: str = "UTC"
    is_open: bool = False
    next_times: Sequence[Span] = ()
    created_at: datetime | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        spans = [Span.of(one) for one in raw.get("next_times", ())]
        return replace(super(Window, cls).of(raw), next_times=spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(Record):
    """
    The use that each user of a project has for a calendar month.

    Attributes:
        unit: `requests` or `tokens`.
        policy: `strict`: nothing is reserved beyond the quota; `record_overage`: more is reserved, and recorded.
        set_by_operator: Whether an operator set it, so that the project's keys may only read it.
        months: After a change: how many users' months have another quota now.
        warnings: After a change: its effects that may surprise.
    """

    project: str
    unit: str = ""
    quota: int = 0
    policy: str = ""
    time_zone: str = "UTC"
    reservation_seconds: int = 0
    set_by_operator: bool = False
    updated_at: datetime | None = None
    months: int = 0
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Record):
    """
    Something done to many rows in the background.

    Attributes:
        canary: The rows that go first, and what became of their jobs. None: all went at once.
    """

    id: UUID
    status: str
    action: str | None = None
    total: int = 0
    done: int = 0
    skipped: int = 0
    error: str | None = None
    canary: Mapping[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        return self.status != "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Record):
    """
    A change that a person or key made, with its secrets masked.

    Attributes:
        moved: How many rows it changed.
        address: The network address that the change came from.
        cursor: With `order="oldest"`, set on the last entry of each page: a later call goes on from it.
    """

    id: int
    created_at: datetime
    actor: str
    action: str
    target: str
    project_id: str = ""
    moved: int = 1
    reason: str = ""
    address: str = ""
    before: Any = None
    after: Any = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Record):
    """
    Something that happened to a job.

    Attributes:
        to: The state after a `state_change`; the one before is in `raw["from"]`.
        skipped: How many events before this one were left out, because too many came at once.
    """

    id: int
    type: str = ""
    job: UUID | None = None
    to: str | None = None
    message: str = ""
    percent: float | None = None
    data: Any = None
    at: datetime | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Record):
    """
    Attributes:
        moved: Ids that the action changed; for requeued dead letters, with their new jobs.
        unmoved: Ids that are unknown in this project, or in a state that the action does not apply to.
    """

    moved: Mapping[str, str] | Sequence[str] = ()
    unmoved: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Record):
    """
    Attributes:
        changed_jobs: How many jobs this call held or released.
    """

    paused: bool = False
    changed_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Record):
    """
    Attributes:
        counts: Jobs by state.
        scheduled: How many of the queued jobs wait for their time; `scheduled_until`: when the last of them may begin.
        max_waiting_jobs: Submissions beyond so many unfinished jobs are refused.
        encrypted: Whether payloads and results are encrypted in the server's database, so that jobs are not found by
            them.
    """

    id: str
    name: str = ""
    paused: bool = False
    counts: Mapping[str, int]
    scheduled: int = 0
    scheduled_until: datetime | None = None
    unfinished: int = 0
    max_waiting_jobs: int = 0
    encrypted: bool = False
