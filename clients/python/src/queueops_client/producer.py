# Written by generate_sync.py from async_producer.py: change that one.
"""The producer's client, blocking: submit work, watch it, fetch what came of it, steer it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from queueops_client.calls import AnyBatch, Calls, Id, Letters, Subject, Target
from queueops_client.line import Line
from queueops_client.records import (
    Allowance,
    AuditEntry,
    Batch,
    DeadLetter,
    Delivery,
    Fire,
    Forecast,
    HeardJob,
    Job,
    Moved,
    Operation,
    Paused,
    Project,
    Result,
    Schedule,
    SentAgain,
    SubmittedBatch,
    Webhook,
    Window,
)
from queueops_client.retry import Retry
from queueops_client.specs import (
    AllowanceChanges,
    AllowanceOptions,
    JobOptions,
    Jobs,
    JobSpec,
    OnFailure,
    ScheduleChanges,
    ScheduleOptions,
    Spool,
    WebhookChanges,
    WebhookOptions,
    WindowOptions,
)
from queueops_client.transport import DEFAULT_TIMEOUT_SECONDS, Token, Transport
from queueops_client.watching import PATIENCE_SECONDS, Update, watch_of

Priority = Literal["urgent", "normal", "low"]


class QueueOps:
    """
    A project's work, through one of its keys. Any number of threads may share one.

    Every request here is sent again after a lost connection, a lost answer, a 429 or a 503. That does no harm: each
    request that changes something carries an Idempotency-Key or is harmless to repeat. Every method may raise
    Unreachable, or a subclass of ApiError.

    Args:
        base_url: The installation's address, such as `https://queue.example.org`.
        key: A producer key or a user's token, or a function that returns one.
        timeout: Seconds to wait for the next byte.
        retry: How long requests are sent again; a minute by default.
    """

    def __init__(
        self, base_url: str, key: Token, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, retry: Retry | None = None
    ) -> None:
        self.transport = Transport(base_url, key, timeout=timeout, retry=retry)
        self._calls = Calls(self.transport.retry)
        self._run = self.transport.run
        self._iterate = self.transport.iterate

    # Submitting

    def submit(self, kind: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Job:
        """
        Submit one job; when this returns, it is stored durably.

        Returns:
            The job with its id; `created` and `outcome` say whether it is new, or an earlier job with the same
            idempotency_key or unique_key.
        """
        return self._run(self._calls.submit(JobSpec(kind=kind, payload=payload or {}, **options)))

    def submit_many(
        self,
        jobs: Jobs,
        *,
        name: str = "",
        tags: Sequence[str] = (),
        partial: bool = False,
        start_interval_seconds: float = 0.0,
        after: Sequence[Id] = (),
        on_failure: OnFailure | None = None,
        on_finish: JobSpec | Mapping[str, Any] | None = None,
        guard_percent: int | None = None,
        guard_first: int | None = None,
        idempotency_key: str | None = None,
    ) -> SubmittedBatch:
        """
        Submit up to 100,000 jobs as one batch, without holding them in memory.

        The jobs are written to a temporary file first, so that the request can be repeated to the byte and
        nothing is sent when `jobs` raises.

        Args:
            jobs: JobSpecs, or mappings with their fields.
            tags: Tags of the batch alone; jobs have their own.
            partial: Accept the valid jobs and report the others; otherwise one bad job rejects all.
            start_interval_seconds: Start the jobs so many seconds apart.
            after, on_failure: What the whole batch waits for, and what to do if that fails; as for a job.
            on_finish: A job to carry out once, when the whole batch has ended; an `http.request` without a body of its
                own posts the batch's id and counts.
            guard_percent, guard_first: The batch pauses itself when so many percent of so many first jobs have failed
                for good with one code; 0 percent: never. None: as the project says; by default 20 percent of the first
                50, in batches of more than 200 jobs.
            idempotency_key: With a key of your own, another process can safely repeat the call for 7 days. It must then
                give the same jobs. By default each call has a new key.

        Raises:
            TooManyJobs: There are more than 100,000 jobs; nothing was sent.
            BatchRejected: Some jobs are not valid; `errors` has their lines.
            Unreachable: No answer came; try again with its `idempotency_key`.
        """
        with Spool() as spool:
            spool.fill(jobs)
            return self._run(
                self._calls.submit_batch(
                    spool,
                    name=name,
                    tags=tags,
                    partial=partial,
                    start_interval_seconds=start_interval_seconds,
                    after=after,
                    on_failure=on_failure,
                    on_finish=on_finish,
                    guard_percent=guard_percent,
                    guard_first=guard_first,
                    idempotency_key=idempotency_key,
                )
            )

    def forecast(
        self,
        jobs: Jobs,
        *,
        partial: bool = False,
        start_interval_seconds: float = 0.0,
        after: Sequence[Id] = (),
        on_finish: JobSpec | Mapping[str, Any] | None = None,
    ) -> Forecast:
        """
        Say what a batch of these jobs would cost, when it would end and which jobs would be refused; stores nothing.

        Args:
            jobs, partial, start_interval_seconds: As for `submit_many`.
            after, on_finish: As for `submit_many`; they are checked, and cost nothing here.

        Raises:
            TooManyJobs: There are more than a batch takes; nothing was sent.
            QueueFull: The project has no room for the jobs.
        """
        with Spool() as spool:
            spool.fill(jobs)
            steps = self._calls.forecast(
                spool,
                partial=partial,
                start_interval_seconds=start_interval_seconds,
                after=after,
                on_finish=on_finish,
            )
            return self._run(steps)

    # Looking

    def job(self, job: Id | Job) -> Job:
        return self._run(self._calls.job(job))

    def batch(self, batch: Id | AnyBatch) -> Batch:
        return self._run(self._calls.batch(batch))

    def waiting(self, batch: Id | AnyBatch) -> list[dict[str, Any]]:
        """
        Return what holds a batch back: its waiting jobs in groups that share all limits, the largest first, at most
        five.

        Each group has user, jobs, more, reasons and last_starts_at; see the reference. If `more` is true, not all
        waiting jobs of the batch were counted, and the group may have more.
        """
        return self._run(self._calls.waiting(batch))

    def operation(self, operation: Id | Operation) -> Operation:
        return self._run(self._calls.operation(operation))

    def operations(self, **filters: Any) -> Iterator[Operation]:
        """
        Iterate over the project's operations, newest first.

        Args:
            filters: The filters of `GET /operations/`: action, status, created_after, created_before.
        """
        return self._iterate(self._calls.operations(filters))

    def find(self, target: Target) -> Subject:
        """Return the batch or job with this id, or the present state of a record."""
        return self._run(self._calls.subject(target))

    def project(self) -> Project:
        return self._run(self._calls.project())

    def handlers(self) -> list[dict[str, Any]]:
        """The kinds of jobs that may be submitted, with the JSON schemas of their payloads."""
        return self._run(self._calls.handlers())

    def jobs(self, **filters: Any) -> Iterator[Job]:
        """
        Iterate over jobs without payloads and results, newest first; pages are fetched as they are needed.

        Args:
            filters: The filters of `GET /jobs/`: state, tags (all of them) and any_tag (several: a list), kind, batch,
                user, created_after, and so on.
        """
        return self._iterate(self._calls.jobs(filters))

    def batches(self, **filters: Any) -> Iterator[Batch]:
        """Iterate over batches, newest first."""
        return self._iterate(self._calls.batches(filters))

    def dead_letters(self, **filters: Any) -> Iterator[DeadLetter]:
        """
        Iterate over dead letters, newest first.

        Args:
            filters: The filters of `GET /dead-letters/`: open, batch, kind, error_code, fingerprint, and so on.
        """
        return self._iterate(self._calls.dead_letters(filters))

    def dead_letter(self, letter: Id | DeadLetter) -> DeadLetter:
        return self._run(self._calls.dead_letter(letter))

    def results(self, batch: Id | AnyBatch) -> Iterator[Result]:
        """
        Iterate over what became of each job of a batch so far, in the order in which they were submitted.

        Jobs that have not ended come too, without a result. A requeued job comes as its latest successor, at the end.
        If a batch made no job because jobs with the keys of all its lines existed, the jobs of their batches come
        instead.
        """
        return self._iterate(self._calls.results(batch))

    def table(
        self, batch: Id | AnyBatch, *, columns: Sequence[str] = (), with_input: bool = False
    ) -> list[dict[str, Any]]:
        """
        Return a row for each job of a batch, in the order in which they were submitted: `idempotency_key`, `id`,
        `state`, `last_error_code`, `cost_money` (in millionths), the columns or the whole `result`.

        Args:
            columns: Places in the results, such as `data.total`.
            with_input: Each row has the job's `payload`, too.
        """
        return self._run(self._calls.table(batch, columns=columns, with_input=with_input))

    def result(self, job: Id | Job | Result) -> Any:
        """
        Return what a job's handler returned, however large: also where the job's record has `stored_result` instead.

        Raises:
            NotFound: There is no such job.
            ApiError: The server's result store has lost the result (`result_missing`).
        """
        return self._run(self._calls.result(job))

    # Waiting

    def watch(
        self,
        target: Target,
        *,
        timeout: float | None = None,
        events: bool = True,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Iterator[Update]:
        """
        Iterate over what happens to a job, batch or operation, until it has ended.

        It uses a websocket, which is opened again after a loss and resumes where it was; without a websocket, it polls.
        The first update shows the present state, the last one the end. A batch sends at most 200 events a second.

        Args:
            events: Whether events come, too; otherwise only states come, at most one a second.
            patience_seconds: How long the server may be unreachable before Unreachable is raised; meanwhile updates of
                the kind `lost` come.

        Raises:
            WaitTimeout: The target has not ended within `timeout` seconds.
        """
        line = Line()
        watch = watch_of(self.transport, line, timeout=timeout, events=events, patience_seconds=patience_seconds)
        try:
            for update in self._iterate(watch.follow(target)):
                yield update
        finally:
            line.close()

    @overload
    def wait(self, target: Job, timeout: float | None = None) -> Job: ...
    @overload
    def wait(self, target: AnyBatch, timeout: float | None = None) -> Batch: ...
    @overload
    def wait(self, target: Operation, timeout: float | None = None) -> Operation: ...
    @overload
    def wait(self, target: Id, timeout: float | None = None) -> Job | Batch: ...
    def wait(self, target: Target, timeout: float | None = None) -> Subject:
        """
        Wait until a job, batch or operation has ended, however it ended, and return it.

        Args:
            timeout: Seconds; None: for as long as it takes.

        Raises:
            WaitTimeout: The target has not ended in time, and goes on; `latest` is its last known state.
        """
        for update in self.watch(target, timeout=timeout, events=False):
            latest = update.subject
        return latest

    # Steering

    def cancel_job(self, job: Id | Job, *, reason: str = "") -> Job:
        """
        Cancel a job that has not ended; a running handler is told when it next waits.

        Raises:
            Conflict: The job has ended.
        """
        return self._run(self._calls.cancel_job(job, reason))

    def cancel_jobs(self, jobs: Iterable[Id | Job], *, reason: str = "") -> Moved:
        """Cancel jobs, at most 10,000, except those that have ended."""
        return self._run(self._calls.cancel_jobs(jobs, reason))

    def change_job_priority(self, job: Id | Job, priority: Priority, *, reason: str = "") -> Job:
        """
        Change the priority of a job that waits.

        Raises:
            Conflict: The job does not wait.
        """
        return self._run(self._calls.change_job_priority(job, priority, reason))

    def change_jobs_priority(self, jobs: Iterable[Id | Job], priority: Priority, *, reason: str = "") -> Moved:
        """Change the priority of jobs, at most 10,000, except those that do not wait."""
        return self._run(self._calls.change_jobs_priority(jobs, priority, reason))

    def change_batch_priority(
        self, batch: Id | AnyBatch, priority: Priority, *, canary: int | None = None, reason: str = ""
    ) -> Operation:
        """Begin to change the priority of a batch's waiting jobs: with `canary` so many first, as `retry_batch`."""
        return self._run(self._calls.change_batch_priority(batch, priority, canary=canary, reason=reason))

    def reschedule_job(self, job: Id | Job, *, delay_seconds: float, reason: str = "") -> Job:
        """
        Let a job that waits begin so many seconds from now; 0: as soon as possible.

        Raises:
            Conflict: The job does not wait.
        """
        return self._run(self._calls.reschedule_job(job, delay_seconds, reason))

    def reschedule_jobs(self, jobs: Iterable[Id | Job], *, delay_seconds: float, reason: str = "") -> Moved:
        """Let jobs, at most 10,000, begin so many seconds from now, except those that do not wait."""
        return self._run(self._calls.reschedule_jobs(jobs, delay_seconds, reason))

    def cancel_operation(self, operation: Id | Operation, *, reason: str = "") -> Operation:
        """Stop an operation; what it has done stays done, and one that has ended is left alone."""
        return self._run(self._calls.cancel_operation(operation, reason))

    def retry_job(
        self,
        job: Id | Job,
        *,
        payload: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        note: str = "",
    ) -> Job:
        """
        Requeue a failed job, with another payload if one is given; returns the new job.

        Raises:
            Conflict: The job has not failed, or was requeued or discarded.
        """
        return self._run(self._calls.retry_job(job, payload=payload, priority=priority, note=note))

    def cancel_batch(self, batch: Id | AnyBatch, *, reason: str = "") -> Operation:
        """Begin to cancel the unfinished jobs of a batch; `wait` for the operation."""
        return self._run(self._calls.cancel_batch(batch, reason))

    def retry_batch(
        self,
        batch: Id | AnyBatch,
        *,
        priority: Priority | None = None,
        spread_seconds: float = 0.0,
        note: str = "",
        canary: int | None = None,
    ) -> Operation:
        """
        Begin to requeue the failed jobs of a batch, the starts spread over so many seconds.

        Args:
            canary: Requeue so many first; the rest follows once these have ended, unless too many of them fail.
        """
        return self._run(
            self._calls.retry_batch(batch, priority=priority, spread_seconds=spread_seconds, note=note, canary=canary)
        )

    def go_on_job(self, job: Id | Job, *, reason: str = "") -> Job:
        """Let a job that waits for others go on all the same."""
        return self._run(self._calls.go_on_job(job, reason))

    def go_on_batch(self, batch: Id | AnyBatch, *, reason: str = "") -> Batch:
        """Let a batch that waits for others go on all the same."""
        return self._run(self._calls.go_on_batch(batch, reason))

    def pause_batch(self, batch: Id | AnyBatch, *, reason: str = "") -> Paused:
        """Hold back the jobs of the batch that do not run yet."""
        return self._run(self._calls.pause_batch(batch, reason))

    def resume_batch(self, batch: Id | AnyBatch, *, reason: str = "", canary: int | None = None) -> Paused:
        """Let the batch go on: with `canary` so many jobs first, and the rest once they have ended well."""
        return self._run(self._calls.resume_batch(batch, reason, canary))

    def pause_project(self, *, reason: str = "") -> Paused:
        """Hold back all of the project's work that does not run yet."""
        return self._run(self._calls.pause_project(reason))

    def resume_project(self, *, reason: str = "") -> Paused:
        return self._run(self._calls.resume_project(reason))

    def requeue(
        self,
        letters: Letters,
        *,
        payload: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        spread_seconds: float = 0.0,
        note: str = "",
    ) -> Moved:
        """
        Requeue dead letters; `moved` maps each to its new job.

        Args:
            letters: At most 10,000.
            payload: Replaces the payload of each failed job.
            spread_seconds: Spread the starts over so many seconds.
        """
        return self._run(
            self._calls.requeue(letters, payload=payload, priority=priority, spread_seconds=spread_seconds, note=note)
        )

    def requeue_where(
        self,
        where: Mapping[str, Any],
        *,
        payload: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        spread_seconds: float = 0.0,
        note: str = "",
        canary: int | None = None,
    ) -> Operation:
        """
        Begin to requeue all open dead letters that fit; `wait` for the operation.

        Args:
            canary: Requeue so many first; the rest follows once these have ended, unless too many of them fail.
            where: kind, service, error_code, fingerprint, batch_id, created_from, created_until; empty: all.
        """
        return self._run(
            self._calls.requeue_where(
                where, payload=payload, priority=priority, spread_seconds=spread_seconds, note=note, canary=canary
            )
        )

    def discard(self, letters: Letters, *, reason: str) -> Moved:
        """Close dead letters for good. There is no way back."""
        return self._run(self._calls.discard(letters, reason=reason))

    def discard_where(self, where: Mapping[str, Any], *, reason: str) -> Operation:
        """Begin to close all open dead letters that fit; `where` as in requeue_where."""
        return self._run(self._calls.discard_where(where, reason=reason))

    # Schedules

    def schedules(self, **filters: Any) -> Iterator[Schedule]:
        """
        Iterate over the project's schedules, newest first.

        Args:
            filters: The filters of `GET /schedules/`: name, paused, and so on.
        """
        return self._iterate(self._calls.schedules(filters))

    def schedule(self, schedule: Id | Schedule) -> Schedule:
        return self._run(self._calls.schedule(schedule))

    def fires(self, schedule: Id | Schedule, **filters: Any) -> Iterator[Fire]:
        """
        Iterate over what came of a schedule's fires, newest first.

        Args:
            filters: The filters of `GET /schedules/<id>/fires/`: outcome (several: a list), created_after, and so on.
        """
        return self._iterate(self._calls.fires(schedule, filters))

    def create_schedule(self, name: str, cron: str, jobs: Jobs, **options: Unpack[ScheduleOptions]) -> Schedule:
        """
        Submit the same jobs whenever the cron text is due: one as a job, several as a batch of this name.

        The key needs the scope `submit`. Jobs are checked as if they were submitted, and have no times or
        idempotency keys of their own.

        Args:
            cron: Minute, hour, day of the month, month, day of the week.
            jobs: 1 to 1,000 JobSpecs, or mappings with their fields; 1 MB of JSON.

        Raises:
            InvalidRequest: A field is wrong, such as a name that is taken, or a cron text that never fires; `fields`
                names it.
        """
        return self._run(self._calls.create_schedule({"name": name, "cron": cron, "jobs": jobs, **options}))

    def preview_schedule(self, name: str, cron: str, jobs: Jobs, **options: Unpack[ScheduleOptions]) -> list[datetime]:
        """
        Return the first five times at which such a schedule would fire.

        This refuses what `create_schedule` would refuse, and stores nothing.
        """
        return self._run(self._calls.preview_schedule({"name": name, "cron": cron, "jobs": jobs, **options}))

    def change_schedule(self, schedule: Id | Schedule, **changes: Unpack[ScheduleChanges]) -> Schedule:
        """Change a schedule; fields that are left out stay as they are. New times apply from now on."""
        return self._run(self._calls.change_schedule(schedule, changes))

    def pause_schedule(self, schedule: Id | Schedule, *, reason: str = "") -> Schedule:
        """Let a schedule fire no more until it is resumed; the work that it has submitted goes on."""
        return self._run(self._calls.pause_schedule(schedule, reason))

    def resume_schedule(self, schedule: Id | Schedule, *, reason: str = "") -> Schedule:
        """Let a schedule fire again from now on; fires that were due during the pause are not made up for."""
        return self._run(self._calls.resume_schedule(schedule, reason))

    def run_schedule(self, schedule: Id | Schedule, *, reason: str = "") -> Fire:
        """Submit a schedule's jobs now, even while it is paused; its next fire stays as it is."""
        return self._run(self._calls.run_schedule(schedule, reason))

    def delete_schedule(self, schedule: Id | Schedule, *, reason: str = "") -> None:
        """
        Delete a schedule; the work that it has submitted goes on.

        Raises:
            NotFound: There is no such schedule; after a lost answer, because it has been deleted.
        """
        self._run(self._calls.delete_schedule(schedule, reason))

    # Maintenance windows

    def windows(self, **filters: Any) -> Iterator[Window]:
        """
        Iterate over maintenance windows, newest first: the project's, and windows that hold its work along with
        others'.

        Args:
            filters: The filters of `GET /maintenance/`: scope (several: a list), created_after, created_before.
        """
        return self._iterate(self._calls.windows(filters))

    def window(self, window: Id | Window) -> Window:
        return self._run(self._calls.window(window))

    def create_window(self, **figures: Unpack[WindowOptions]) -> Window:
        """
        Pause the project by calendar, once or weekly. The key needs the scope `operate`.

        Raises:
            InvalidRequest: A field is wrong, such as a time that is over, or an end before the begin; `fields` names
                it.
        """
        return self._run(self._calls.create_window(figures))

    def change_window(self, window: Id | Window, **changes: Unpack[WindowOptions]) -> Window:
        """Change one of the project's windows; fields that are left out stay as they are."""
        return self._run(self._calls.change_window(window, changes))

    def end_window(self, window: Id | Window, *, reason: str = "") -> Window:
        """End an open window. A weekly window comes again; a window that is not open stays as it is."""
        return self._run(self._calls.end_window(window, reason))

    def delete_window(self, window: Id | Window, *, reason: str = "") -> None:
        """
        Delete a window; the jobs that it holds may start, unless something else holds them.

        Raises:
            NotFound: There is no such window; after a lost answer, because it has been deleted.
        """
        self._run(self._calls.delete_window(window, reason))

    # Allowances

    def allowances(self, **filters: Any) -> Iterator[Allowance]:
        """
        Iterate over the project's allowance: one, or none.

        Args:
            filters: `GET /allowances/` has no filters.
        """
        return self._iterate(self._calls.allowances(filters))

    def allowance(self, allowance: str | Allowance) -> Allowance:
        """
        Return the allowance of a project, by its id.

        Raises:
            NotFound: The project has no allowance, or is not the key's own (`no_allowance`).
        """
        return self._run(self._calls.allowance(allowance))

    def create_allowance(self, quota: int, **options: Unpack[AllowanceOptions]) -> Allowance:
        """
        Give each user of the project so many requests or tokens a month. The key needs the scope `limits`.

        Raises:
            Conflict: There is an allowance (`allowance_exists`); after a lost answer, because it has been made.
            InvalidRequest: A field is wrong; `fields` names it.
        """
        return self._run(self._calls.create_allowance({"quota": quota, **options}))

    def change_allowance(self, allowance: str | Allowance, **changes: Unpack[AllowanceChanges]) -> Allowance:
        """
        Change an allowance, also for the current month; fields that are left out stay as they are.

        Raises:
            NotAllowed: An operator has set the allowance (`operators_allowance`).
        """
        return self._run(self._calls.change_allowance(allowance, changes))

    def delete_allowance(self, allowance: str | Allowance, *, reason: str) -> None:
        """
        Delete an allowance; earlier months stay as they are.

        Raises:
            Conflict: Some of it was used or reserved this month (`allowance_in_use`).
            NotFound: There is no allowance; after a lost answer, because it has been deleted.
        """
        self._run(self._calls.delete_allowance(allowance, reason))

    # Audit

    def audit(self, **filters: Any) -> Iterator[AuditEntry]:
        """
        Iterate over what people and keys changed in the project, newest first. The key needs the scope `audit`.

        With `order="oldest"` no entry that is written meanwhile is missed, and the iteration ends when there are no
        more now. Store the `cursor` of the last entry, and give it as `cursor` to go on.

        Args:
            filters: The filters of `GET /audit/`: actor, action, target, created_after, created_before, order, cursor.

        Raises:
            InvalidRequest: The database was restored after the cursor was given (`other_epoch`); begin without a
                cursor.
        """
        return self._iterate(self._calls.audit(filters))

    # Webhooks

    def webhooks(self, **filters: Any) -> Iterator[Webhook]:
        """
        Iterate over the project's webhooks, newest first.

        Args:
            filters: The filters of `GET /webhooks/`: enabled, hears_jobs, and so on.
        """
        return self._iterate(self._calls.webhooks(filters))

    def webhook(self, webhook: Id | Webhook) -> Webhook:
        return self._run(self._calls.webhook(webhook))

    def create_webhook(self, url: str, **options: Unpack[WebhookOptions]) -> Webhook:
        """
        Have signed POSTs sent to an address when batches or jobs end.

        The key needs the scope `operate`. The returned `secret` is shown only now. After a lost answer it is None:
        make another webhook, and switch this one off.

        Raises:
            InvalidRequest: A field is wrong; `fields` names it.
        """
        return self._run(self._calls.create_webhook({"url": url, **options}))

    def change_webhook(self, webhook: Id | Webhook, **changes: Unpack[WebhookChanges]) -> Webhook:
        """Change a webhook; fields that are left out stay as they are. A new `jobs` replaces the whole filter."""
        return self._run(self._calls.change_webhook(webhook, changes))

    def change_webhook_secret(
        self, webhook: Id | Webhook, *, overlap_seconds: int | None = None, reason: str = ""
    ) -> Webhook:
        """
        Give a webhook another signing secret.

        The returned `secret` is shown only now. After a lost answer it is None: change it again with an overlap of 0.

        Args:
            overlap_seconds: So long the former secret signs, too; a day by default. 0: it signs nothing from now on.

        Raises:
            Conflict: The former secret still signs (`secret_changing`), and the overlap is not 0.
        """
        return self._run(self._calls.change_webhook_secret(webhook, overlap_seconds=overlap_seconds, reason=reason))

    def test_webhook(self, webhook: Id | Webhook, *, reason: str = "") -> Delivery:
        """Send a signed test, also to a webhook that is switched off; `deliveries` says what became of it."""
        return self._run(self._calls.test_webhook(webhook, reason))

    def send_webhook_again(
        self, webhook: Id | Webhook, *, since: datetime | None = None, confirm: bool = True, reason: str = ""
    ) -> SentAgain:
        """
        End a webhook's pause, and send again the messages that failed for good: under the same ids, the oldest first.

        Args:
            since: Only messages that failed since then.
            confirm: False sends nothing; `left` says how many would be sent.

        Raises:
            Conflict: The webhook is switched off.
        """
        return self._run(self._calls.send_webhook_again(webhook, since=since, confirm=confirm, reason=reason))

    def deliveries(self, webhook: Id | Webhook, **filters: Any) -> Iterator[Delivery]:
        """
        Iterate over the messages to a webhook, newest first.

        Args:
            filters: The filters of `GET /webhooks/<id>/deliveries/`: event, state (several: a list), and so on.
        """
        return self._iterate(self._calls.deliveries(webhook, filters))

    def heard_jobs(self, webhook: Id | Webhook, **filters: Any) -> Iterator[HeardJob]:
        """
        Iterate over the ended jobs that a webhook is told of, newest first.

        Args:
            filters: The filters of `GET /webhooks/<id>/jobs/`: job, waits, and so on.
        """
        return self._iterate(self._calls.heard_jobs(webhook, filters))

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
