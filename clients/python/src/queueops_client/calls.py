"""The calls of the API, each as steps that both kinds of client take. `QueueOps` documents the calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

from queueops_client.errors import InvalidRequest, NotFound
from queueops_client.exchange import Answer, Emit, RequestOptions, Steps, exchange, request_of
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
    Record,
    Result,
    Schedule,
    SentAgain,
    SubmittedBatch,
    Webhook,
    Window,
    moments,
)
from queueops_client.retry import Retry
from queueops_client.specs import (
    JobSpec,
    OnFailure,
    Spool,
    encoded,
    encoded_allowance,
    encoded_schedule,
    encoded_webhook,
    encoded_window,
)

API = "/api/v1"
PAGE_SIZE = 500
PROJECT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
BATCH_TIMEOUT_SECONDS = 300.0  # 100,000 jobs are checked and stored before the answer

AnyRecord = TypeVar("AnyRecord", bound=Record)
Id = UUID | str
Target = UUID | str | Job | Batch | SubmittedBatch | Operation
Subject = Job | Batch | Operation
Body = Mapping[str, Any]
Letters = Iterable[Id | DeadLetter]
AnyBatch = Batch | SubmittedBatch


def id_of(given: Id | Record) -> str:
    """
    Raises:
        InvalidRequest: The value is no UUID, so the path would name another address.
    """
    value = getattr(given, "id", given)
    try:
        return str(UUID(str(value)))
    except ValueError:
        raise InvalidRequest("invalid_id", f"{value!r} is not an id.", status=422) from None


def _allowance_path(allowance: str | Allowance) -> str:
    """
    Raises:
        InvalidRequest: The value is no project's id, so the path would name another address.
    """
    project = allowance.project if isinstance(allowance, Allowance) else allowance
    if not PROJECT_ID.fullmatch(project):
        raise InvalidRequest("invalid_id", f"{project!r} is not the id of a project.", status=422)
    return f"/allowances/{project}/"


class Calls:
    """
    Attributes:
        timeout: Seconds to wait for the next byte; None: the transport's.
    """

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.timeout: float | None = None

    def submit(self, job: JobSpec) -> Steps[Job]:
        body = encoded(job)
        headers = {"content-type": "application/json", "idempotency-key": str(uuid4())}
        answer = yield from self.request("POST", "/jobs/", content=body, headers=headers)
        return Job.of({"kind": job.kind, "payload": dict(job.payload), **answer.body})

    def submit_batch(
        self,
        spool: Spool,
        *,
        name: str,
        tags: Sequence[str],
        partial: bool,
        start_interval_seconds: float,
        after: Sequence[Id],
        on_failure: OnFailure | None,
        on_finish: JobSpec | Mapping[str, Any] | None,
        guard_percent: int | None,
        guard_first: int | None,
        idempotency_key: str | None,
    ) -> Steps[SubmittedBatch]:
        key = idempotency_key or str(uuid4())
        answer = yield from self.request(
            "POST",
            "/batches/",
            content=spool.blocks,
            params={
                "name": name or None,
                "tags": list(tags) or None,
                "partial": partial or None,
                "start_interval_seconds": start_interval_seconds or None,
                "after": [str(one) for one in after] or None,
                "on_failure": on_failure,
                "on_finish": None if on_finish is None else encoded(on_finish).decode(),
                "guard_percent": guard_percent,
                "guard_first": guard_first,
            },
            headers={
                "content-type": "application/x-ndjson",
                "content-length": str(spool.size_bytes),
                "idempotency-key": key,
            },
            timeout=BATCH_TIMEOUT_SECONDS,
        )
        return SubmittedBatch.of({**answer.body, "idempotency_key": key})

    def forecast(
        self,
        spool: Spool,
        *,
        partial: bool,
        start_interval_seconds: float,
        after: Sequence[Id],
        on_finish: JobSpec | Mapping[str, Any] | None,
    ) -> Steps[Forecast]:
        answer = yield from self.request(
            "POST",
            "/forecast/",
            content=spool.blocks,
            params={
                "partial": partial or None,
                "start_interval_seconds": start_interval_seconds or None,
                "after": [str(one) for one in after] or None,
                "on_finish": None if on_finish is None else encoded(on_finish).decode(),
            },
            headers={
                "content-type": "application/x-ndjson",
                "content-length": str(spool.size_bytes),
                "idempotency-key": str(uuid4()),  # a forecast stores nothing, so it may be sent again
            },
            timeout=BATCH_TIMEOUT_SECONDS,
        )
        return Forecast.of(answer.body)

    def job(self, job: Id | Job, *, wait: float = 0.0) -> Steps[Job]:
        return self._read(f"/jobs/{id_of(job)}/", Job, wait=wait)

    def batch(self, batch: Id | AnyBatch, *, wait: float = 0.0) -> Steps[Batch]:
        return self._read(f"/batches/{id_of(batch)}/", Batch, wait=wait)

    def waiting(self, batch: Id | AnyBatch) -> Steps[list[dict[str, Any]]]:
        answer = yield from self.request("GET", f"/batches/{id_of(batch)}/waiting/")
        lanes: list[dict[str, Any]] = answer.body["results"]
        return lanes

    def operation(self, operation: Id | Operation) -> Steps[Operation]:
        return self._read(f"/operations/{id_of(operation)}/", Operation)

    def project(self) -> Steps[Project]:
        return self._read("/project/", Project)

    def handlers(self) -> Steps[list[dict[str, Any]]]:
        answer = yield from self.request("GET", "/handlers/")
        kinds: list[dict[str, Any]] = answer.body["results"]
        return kinds

    def subject(self, given: Target, *, wait: float = 0.0) -> Steps[Subject]:
        """
        Return the present state of the job, batch or operation that is given as a record or an id. A plain id may be a
        batch's or a job's.

        Args:
            wait: Seconds that the server may wait for the end of a job or batch that is given as a record.
        """
        if isinstance(given, Job):
            return (yield from self.job(given, wait=wait))
        if isinstance(given, Operation):
            return (yield from self.operation(given))
        if isinstance(given, Batch | SubmittedBatch):
            return (yield from self.batch(given, wait=wait))
        try:
            return (yield from self.batch(given))
        except NotFound:
            return (yield from self.job(given))

    def cancel_job(self, job: Id | Job, reason: str) -> Steps[Job]:
        return self._act(f"/jobs/{id_of(job)}/cancel/", Job, reason=reason)

    def cancel_jobs(self, jobs: Iterable[Id | Job], reason: str) -> Steps[Moved]:
        return self._act("/jobs/cancel/", Moved, ids=[id_of(job) for job in jobs], reason=reason)

    def change_job_priority(self, job: Id | Job, priority: str, reason: str) -> Steps[Job]:
        return self._act(f"/jobs/{id_of(job)}/priority/", Job, priority=priority, reason=reason)

    def change_jobs_priority(self, jobs: Iterable[Id | Job], priority: str, reason: str) -> Steps[Moved]:
        ids = [id_of(job) for job in jobs]
        return self._act("/jobs/priority/", Moved, ids=ids, priority=priority, reason=reason)

    def change_batch_priority(
        self, batch: Id | AnyBatch, priority: str, *, canary: int | None, reason: str
    ) -> Steps[Operation]:
        path = f"/batches/{id_of(batch)}/priority/"
        return self._act(path, Operation, priority=priority, canary=canary, reason=reason)

    def reschedule_job(self, job: Id | Job, delay_seconds: float, reason: str) -> Steps[Job]:
        return self._act(f"/jobs/{id_of(job)}/schedule/", Job, delay_seconds=delay_seconds, reason=reason)

    def reschedule_jobs(self, jobs: Iterable[Id | Job], delay_seconds: float, reason: str) -> Steps[Moved]:
        ids = [id_of(job) for job in jobs]
        return self._act("/jobs/schedule/", Moved, ids=ids, delay_seconds=delay_seconds, reason=reason)

    def cancel_operation(self, operation: Id | Operation, reason: str) -> Steps[Operation]:
        return self._act(f"/operations/{id_of(operation)}/cancel/", Operation, reason=reason)

    def retry_job(self, job: Id | Job, *, payload: Body | None, priority: str | None, note: str) -> Steps[Job]:
        path = f"/jobs/{id_of(job)}/retry/"
        return self._act(path, Job, payload=payload, priority=priority, note=note)

    def cancel_batch(self, batch: Id | AnyBatch, reason: str) -> Steps[Operation]:
        return self._act(f"/batches/{id_of(batch)}/cancel/", Operation, reason=reason)

    def retry_batch(
        self, batch: Id | AnyBatch, *, priority: str | None, spread_seconds: float, note: str, canary: int | None
    ) -> Steps[Operation]:
        path = f"/batches/{id_of(batch)}/retry/"
        options = {"priority": priority, "spread_seconds": spread_seconds, "note": note, "canary": canary}
        return self._act(path, Operation, **options)

    def go_on_job(self, job: Id | Job, reason: str) -> Steps[Job]:
        return self._act(f"/jobs/{id_of(job)}/go-on/", Job, reason=reason)

    def go_on_batch(self, batch: Id | AnyBatch, reason: str) -> Steps[Batch]:
        headers = {"idempotency-key": str(uuid4())}
        path = f"/batches/{id_of(batch)}/go-on/"
        yield from self.request("POST", path, json={"reason": reason} if reason else {}, headers=headers)
        return (yield from self.batch(batch))

    def pause_batch(self, batch: Id | AnyBatch, reason: str) -> Steps[Paused]:
        return self._act(f"/batches/{id_of(batch)}/pause/", Paused, reason=reason)

    def resume_batch(self, batch: Id | AnyBatch, reason: str, canary: int | None) -> Steps[Paused]:
        return self._act(f"/batches/{id_of(batch)}/resume/", Paused, reason=reason, canary=canary)

    def pause_project(self, reason: str) -> Steps[Paused]:
        return self._act("/project/pause/", Paused, reason=reason)

    def resume_project(self, reason: str) -> Steps[Paused]:
        return self._act("/project/resume/", Paused, reason=reason)

    def requeue(self, letters: Letters, **options: Any) -> Steps[Moved]:
        return self._act("/dead-letters/requeue/", Moved, ids=[id_of(letter) for letter in letters], **options)

    def requeue_where(self, where: Body, **options: Any) -> Steps[Operation]:
        return self._act("/dead-letters/requeue/", Operation, filter=_plain(where), **options)

    def discard(self, letters: Letters, *, reason: str) -> Steps[Moved]:
        return self._act("/dead-letters/discard/", Moved, ids=[id_of(letter) for letter in letters], reason=reason)

    def discard_where(self, where: Body, *, reason: str) -> Steps[Operation]:
        return self._act("/dead-letters/discard/", Operation, filter=_plain(where), reason=reason)

    def jobs(self, filters: Body) -> Steps[None]:
        return self._list("/jobs/", Job, filters)

    def batches(self, filters: Body) -> Steps[None]:
        return self._list("/batches/", Batch, filters)

    def dead_letters(self, filters: Body) -> Steps[None]:
        # Smaller pages: each letter comes with its payload.
        return self._list("/dead-letters/", DeadLetter, filters, page_size=100)

    def dead_letter(self, letter: Id | DeadLetter) -> Steps[DeadLetter]:
        return self._read(f"/dead-letters/{id_of(letter)}/", DeadLetter)

    def operations(self, filters: Body) -> Steps[None]:
        return self._list("/operations/", Operation, filters)

    def results(self, batch: Id | AnyBatch) -> Steps[None]:
        for one in (yield from self._with_jobs(batch)):
            yield from self._list(f"/batches/{id_of(one)}/results/", Result, {}, page_size=100)

    def table(self, batch: Id | AnyBatch, *, columns: Sequence[str], with_input: bool) -> Steps[list[dict[str, Any]]]:
        params = {"format": "json", "columns": list(columns) or None, "with_input": with_input or None}
        rows: list[dict[str, Any]] = []
        for one in (yield from self._with_jobs(batch)):
            path = f"/batches/{id_of(one)}/table/"
            answer = yield from self.request("GET", path, params=params, timeout=BATCH_TIMEOUT_SECONDS)
            rows += answer.body
        return rows

    def _with_jobs(self, batch: Id | AnyBatch) -> Steps[Sequence[Id]]:
        """Return the batch, or, if it made no jobs, the batches that have the jobs which it would have made again."""
        found = batch if isinstance(batch, Batch | SubmittedBatch) else (yield from self.batch(batch))
        of = found.total if isinstance(found, Batch) else found.accepted
        return [found.id] if of or not found.known_batches else list(found.known_batches)

    def audit(self, filters: Body) -> Steps[None]:
        """
        Emit entries until there are no more at present. With the oldest first, the server returns a cursor on every
        page, from which a later call goes on.
        """
        params: dict[str, Any] = {"page_size": PAGE_SIZE, **_plain(filters)}
        while True:
            answer = yield from self.request("GET", "/audit/", params=params)
            rows, params["cursor"] = answer.body["results"], answer.body["next_cursor"]
            is_oldest_first = params.get("order") == "oldest"
            for place, row in enumerate(rows, start=1):
                cursor = params["cursor"] if is_oldest_first and place == len(rows) else None
                yield Emit(replace(AuditEntry.of(row), cursor=cursor))
            if not rows or not params["cursor"]:
                return

    def result(self, job: Id | Job | Result) -> Steps[Any]:
        answer = yield from self.request("GET", f"/jobs/{id_of(job)}/result/")
        return answer.body

    def schedules(self, filters: Body) -> Steps[None]:
        return self._list("/schedules/", Schedule, filters, page_size=100)

    def schedule(self, schedule: Id | Schedule) -> Steps[Schedule]:
        return self._read(f"/schedules/{id_of(schedule)}/", Schedule)

    def fires(self, schedule: Id | Schedule, filters: Body) -> Steps[None]:
        return self._list(f"/schedules/{id_of(schedule)}/fires/", Fire, filters)

    def create_schedule(self, figures: Body) -> Steps[Schedule]:
        answer = yield from self._store("POST", "/schedules/", encoded_schedule(figures))
        return Schedule.of(answer.body)

    def preview_schedule(self, figures: Body) -> Steps[list[datetime]]:
        answer = yield from self._store("POST", "/schedules/preview/", encoded_schedule(figures))
        return moments(answer.body["next_due"])

    def change_schedule(self, schedule: Id | Schedule, changes: Body) -> Steps[Schedule]:
        answer = yield from self._store("PATCH", f"/schedules/{id_of(schedule)}/", encoded_schedule(changes))
        return Schedule.of(answer.body)

    def pause_schedule(self, schedule: Id | Schedule, reason: str) -> Steps[Schedule]:
        return self._act(f"/schedules/{id_of(schedule)}/pause/", Schedule, reason=reason)

    def resume_schedule(self, schedule: Id | Schedule, reason: str) -> Steps[Schedule]:
        return self._act(f"/schedules/{id_of(schedule)}/resume/", Schedule, reason=reason)

    def run_schedule(self, schedule: Id | Schedule, reason: str) -> Steps[Fire]:
        return self._act(f"/schedules/{id_of(schedule)}/run/", Fire, reason=reason)

    def delete_schedule(self, schedule: Id | Schedule, reason: str) -> Steps[None]:
        path = f"/schedules/{id_of(schedule)}/"
        yield from self.request("DELETE", path, params={"reason": reason or None}, is_safe=True)

    def webhooks(self, filters: Body) -> Steps[None]:
        return self._list("/webhooks/", Webhook, filters, page_size=100)

    def webhook(self, webhook: Id | Webhook) -> Steps[Webhook]:
        return self._read(f"/webhooks/{id_of(webhook)}/", Webhook)

    def create_webhook(self, figures: Body) -> Steps[Webhook]:
        answer = yield from self._store("POST", "/webhooks/", encoded_webhook(figures))
        return Webhook.of(answer.body)

    def change_webhook(self, webhook: Id | Webhook, changes: Body) -> Steps[Webhook]:
        answer = yield from self._store("PATCH", f"/webhooks/{id_of(webhook)}/", encoded_webhook(changes))
        return Webhook.of(answer.body)

    def change_webhook_secret(
        self, webhook: Id | Webhook, *, overlap_seconds: int | None, reason: str
    ) -> Steps[Webhook]:
        path = f"/webhooks/{id_of(webhook)}/secret/"
        return self._act(path, Webhook, overlap_seconds=overlap_seconds, reason=reason)

    def test_webhook(self, webhook: Id | Webhook, reason: str) -> Steps[Delivery]:
        return self._act(f"/webhooks/{id_of(webhook)}/test/", Delivery, reason=reason)

    def send_webhook_again(
        self, webhook: Id | Webhook, *, since: datetime | None, confirm: bool, reason: str
    ) -> Steps[SentAgain]:
        options = {"since": since and since.isoformat(), "confirm": confirm, "reason": reason}
        return self._act(f"/webhooks/{id_of(webhook)}/send-again/", SentAgain, **options)

    def deliveries(self, webhook: Id | Webhook, filters: Body) -> Steps[None]:
        return self._list(f"/webhooks/{id_of(webhook)}/deliveries/", Delivery, filters)

    def heard_jobs(self, webhook: Id | Webhook, filters: Body) -> Steps[None]:
        return self._list(f"/webhooks/{id_of(webhook)}/jobs/", HeardJob, filters)

    def windows(self, filters: Body) -> Steps[None]:
        return self._list("/maintenance/", Window, filters, page_size=100)

    def window(self, window: Id | Window) -> Steps[Window]:
        return self._read(f"/maintenance/{id_of(window)}/", Window)

    def create_window(self, figures: Body) -> Steps[Window]:
        answer = yield from self._store("POST", "/maintenance/", encoded_window(figures))
        return Window.of(answer.body)

    def change_window(self, window: Id | Window, changes: Body) -> Steps[Window]:
        answer = yield from self._store("PATCH", f"/maintenance/{id_of(window)}/", encoded_window(changes))
        return Window.of(answer.body)

    def end_window(self, window: Id | Window, reason: str) -> Steps[Window]:
        return self._act(f"/maintenance/{id_of(window)}/end/", Window, reason=reason)

    def delete_window(self, window: Id | Window, reason: str) -> Steps[None]:
        path = f"/maintenance/{id_of(window)}/"
        yield from self.request("DELETE", path, params={"reason": reason or None}, is_safe=True)

    def allowances(self, filters: Body) -> Steps[None]:
        return self._list("/allowances/", Allowance, filters)

    def allowance(self, allowance: str | Allowance) -> Steps[Allowance]:
        return self._read(_allowance_path(allowance), Allowance)

    def create_allowance(self, figures: Body) -> Steps[Allowance]:
        answer = yield from self._store("POST", "/allowances/", encoded_allowance(figures))
        return Allowance.of(answer.body)

    def change_allowance(self, allowance: str | Allowance, changes: Body) -> Steps[Allowance]:
        answer = yield from self._store("PATCH", _allowance_path(allowance), encoded_allowance(changes))
        return Allowance.of(answer.body)

    def delete_allowance(self, allowance: str | Allowance, reason: str) -> Steps[None]:
        yield from self.request("DELETE", _allowance_path(allowance), params={"reason": reason}, is_safe=True)

    def _store(self, method: str, path: str, content: bytes) -> Steps[Answer]:
        headers = {"content-type": "application/json", "idempotency-key": str(uuid4())}
        return self.request(method, path, content=content, headers=headers)

    def _read(self, path: str, record: type[AnyRecord], *, wait: float = 0.0) -> Steps[AnyRecord]:
        answer = yield from self.request("GET", path, params={"wait": round(wait, 3) or None})
        return record.of(answer.body)

    def _act(self, path: str, record: type[AnyRecord], **body: Any) -> Steps[AnyRecord]:
        """Carry out an action once, however often it is sent. Values that are None or empty are left to the server."""
        answer = yield from self.request(
            "POST",
            path,
            json={name: value for name, value in body.items() if value not in (None, "")},
            headers={"idempotency-key": str(uuid4())},
        )
        return record.of(answer.body)

    def _list(self, path: str, record: type[Record], filters: Body, *, page_size: int = PAGE_SIZE) -> Steps[None]:
        """Emit the rows of a list, page by page."""
        params: dict[str, Any] = {"page_size": page_size, **_plain(filters)}
        while True:
            answer = yield from self.request("GET", path, params=params)
            for row in answer.body["results"]:
                yield Emit(record.of(row))
            if not answer.body["next_cursor"]:
                return
            params["cursor"] = answer.body["next_cursor"]

    def request(self, method: str, path: str, **options: Any) -> Steps[Answer]:
        given = cast("RequestOptions", {"timeout": self.timeout, **options})
        return exchange(request_of(method, f"{API}{path}", **given), self._retry)


def _plain(filters: Body) -> dict[str, Any]:
    """Leave out filters that are None, and write a record as its id."""
    given = {name: value for name, value in filters.items() if value is not None}
    return {
        name: id_of(value)
        if isinstance(value, Record | UUID)
        else value.isoformat()
        if isinstance(value, datetime)
        else value
        for name, value in given.items()
    }
