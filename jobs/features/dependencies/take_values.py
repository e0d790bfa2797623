"""Puts values from the results of ended jobs into the payload of a job that has waited for these jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextvars import copy_context
from functools import cache
from threading import Thread
from typing import Any
from uuid import UUID

import pydantic_core
from django.conf import settings

from jobs.classify import Failure, clean
from jobs.features.dependencies.takes import NoSuchValue, field_of, read_takes, value_at, with_values
from jobs.features.fallback.ways import watch_ways
from jobs.features.results.read import ResultMissing, among_few, read_stored
from jobs.features.results.reference import StoredResult, stored_in
from jobs.models import Job
from jobs.services.finish.finish import bury
from jobs.services.submit.choose_lane import choose_lanes
from jobs.services.submit.payloads import payloads_to_store
from jobs.services.submit.prepare import PreparedJob, Rules, prepare_job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.tags import store_tags, tags_of_jobs
from jobs.states import WAITING, JobState
from queueops.core.errors import QueueOpsError
from queueops.core.sealing import MARK, PayloadKeysMissing, SealedAway, left_sealed, open_json, seal_text
from queueops.core.sql import run_sql
from queueops.core.stores.store import StoreError

MAX_SOURCE_BYTES = 16_000_000  # a result of so many bytes takes ten times as much memory once it is parsed
STORE_SECONDS = 5.0  # the caller also renews leases: it must not block for as long as a store may take

# The values cannot be read now: the job waits on, and a later turn tries again.
NOT_NOW = (StoreError, SealedAway, PayloadKeysMissing)


def take_values(job_ids: Sequence[UUID]) -> set[UUID]:
    """
    Give jobs whose waiting ends the values that they take from others, in the caller's transaction.

    A job takes its values once: all its attempts and requeues use the same values. If a value does not exist, or the
    payload with the values does not fit the job's kind, the job fails for good and makes no call.

    Returns:
        The jobs that must wait on: the result store does not answer, or a key is not set here.
    """
    waiting_on: set[UUID] = set()
    taking = Job.objects.filter(pk__in=job_ids, takes__isnull=False, held=True, status__in=sorted(WAITING))
    sources, rules_of = _Sources(), cache(Rules)
    for pk in taking.order_by("pk").values_list("pk", flat=True):
        with left_sealed():
            job = Job.objects.select_for_update().get(pk=pk)
        if job.takes is None or "taken" in job.takes or job.status not in WAITING:  # changed before the lock
            continue
        try:
            _store(job, _with_its_values(job, sources, rules_of(job.project_id)))
        except NOT_NOW:
            waiting_on.add(pk)
        except _CannotTake as error:
            _fail(job, Failure("value_not_taken", type(error.__cause__ or error).__qualname__, clean(str(error))))
    return waiting_on


class _CannotTake(Exception):
    """The job can never begin; the message says which value is missing."""


class _Sources:
    """Reads the results that values come from. It keeps the last result: many jobs may take from the same one."""

    def __init__(self) -> None:
        self._last: tuple[UUID, Any] | None = None
        self._silent: StoreError | None = None

    def result(self, source: UUID, project_id: str) -> Any:
        """
        Raises:
            _CannotTake
            StoreError, SealedAway
        """
        if self._last is not None and self._last[0] == source:
            return self._last[1]
        job = _latest(source, project_id)
        if job is None:
            raise _CannotTake(f"job {source} is gone: it was deleted or archived before its result was taken")
        if job.status != JobState.COMPLETED:
            raise _CannotTake(f"job {job.pk} has no result: it is {job.get_status_display()}")
        if job.result is None:
            raise _CannotTake(f"job {job.pk} has no result: its handler gave none, or its user was erased")
        stored = stored_in(job.result)
        result = _opened(job.result) if stored is None else self._read(job, stored)
        self._last = source, result
        return result

    def _read(self, job: Job, stored: StoredResult) -> Any:
        if stored.bytes > MAX_SOURCE_BYTES:
            most = f"values are taken from results of at most {MAX_SOURCE_BYTES:,}"
            raise _CannotTake(f"the result of job {job.pk} has {stored.bytes:,} bytes, and {most}")
        if self._silent is not None:
            raise self._silent
        try:
            return json.loads(open_json(_read_within(stored, STORE_SECONDS).decode()))
        except ResultMissing as error:
            raise _CannotTake(f"job {job.pk}: {error.message}") from error
        except StoreError as error:
            self._silent = error  # otherwise each further job would wait for the store, too
            raise


def _latest(source: UUID, project_id: str) -> Job | None:
    """Return the job, or its latest requeue if the job did not succeed."""
    with left_sealed():
        job = Job.objects.filter(pk=source, project_id=project_id).first()
        while job is not None and job.status != JobState.COMPLETED:
            later = Job.objects.filter(origin_id=job.pk, project_id=project_id).order_by("pk").last()
            if later is None:
                return job
            job = later
        return job


def _read_within(stored: StoredResult, seconds: float) -> bytes:
    """Read in another thread, as nothing bounds the time that a store takes; `among_few` bounds the threads."""
    found: list[bytes] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            with left_sealed(), among_few():
                found.append(b"".join(read_stored(stored)))
        except Exception as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    thread = Thread(target=copy_context().run, args=[read], name="take", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not found:
        raise StoreError(f"The result store gave no result within {seconds:.0f} s.")
    return found[0]


def _opened(value: Any) -> Any:
    """Decrypt a value if it was read sealed."""
    return json.loads(open_json(json.dumps(value))) if isinstance(value, str) and value.startswith(MARK) else value


def _with_its_values(job: Job, sources: _Sources, rules: Rules) -> PreparedJob:
    """
    Raises:
        _CannotTake, StoreError, SealedAway
    """
    told: dict[str, Any] = job.takes or {}
    payload = _opened(job.payload)
    values: list[tuple[tuple[str | int, ...], Any]] = []
    size, most = 0, settings.QUEUEOPS.max_payload_bytes
    for source, take in sorted(read_takes(told), key=lambda one: str(one[0])):
        try:
            value = value_at(sources.result(source, job.project_id), take.steps)
        except NoSuchValue as error:
            raise _CannotTake(f"{field_of(take.place)}: the result of job {source} {error}") from error
        except _CannotTake as error:
            raise _CannotTake(f"{field_of(take.place)}: {error}") from error
        size += len(pydantic_core.to_json(value))
        if size > most:
            raise _CannotTake(f"{field_of(take.place)}: its values have more than the {most:,} bytes of a payload")
        values.append((take.place, value))
    try:
        spec = JobSpec(
            kind=job.kind,
            payload=with_values(payload, values),
            user_id=job.user_id,
            cost=told.get("cost"),
            model=told.get("model"),
        )
        return prepare_job(spec, rules=rules, may_take=False)._replace(id=job.pk)
    except QueueOpsError as error:
        faults = [f"{field}: {fault}" for field, some in error.fields.items() for fault in some]
        where = ", ".join(f"{field_of(take.place)} of job {source}" for source, take in read_takes(told))
        raise _CannotTake(f"{error.message} {'; '.join(faults)} (taken: {where})") from error


def _store(job: Job, prepared: PreparedJob) -> None:
    [chosen] = choose_lanes([prepared], job.project_id)
    [payload] = payloads_to_store([prepared.payload], job.project_id)
    details = prepared.details
    run_sql(
        "jobs",
        "take_values",
        {
            "id": job.pk,
            "project": job.project_id,
            "payload": payload,
            "service": prepared.service,
            "model": details.model or prepared.spec.model,
            "cost": chosen.cost,
            "known_cost": details.known_cost,
            "costs": chosen.units,
            "credential": details.credential,
            "lane": chosen.lane,
            "target": chosen.target,
            "path": chosen.path,
            "coalesce_key": chosen.coalesce_key,
        },
    )
    watch_ways([prepared], job.project_id)
    store_tags(job.project_id, tags_of_jobs([prepared], job.project_id))


def _fail(job: Job, failure: Failure) -> None:
    is_sealed = isinstance(job.payload, str)
    message = seal_text(failure.message) if is_sealed else failure.message  # the message may quote a value
    bury("reject", {job.pk: (job.kind, Failure(failure.code, failure.error_class, message))})
