"""Collects waiting jobs into a provider batch, one line a job, before the provider is called."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import QuerySet
from pydantic_core import to_json

from jobs.features.budget_holds.afford import Affordable, ChosenLine, afford
from jobs.handlers.batch_form import BatchApi, BatchForm
from jobs.handlers.registry import UnknownKind, find_handler
from jobs.lanes import subject_of
from jobs.models import BatchSearch, Job, ProviderBatch, ProviderBatchLine, new_id
from queueops.core.clock import Now, database_now
from queueops.core.sql import run_sql_as
from queueops.tenancy.secrets.credentials import base_url_of, find_principals
from ratelimits.costs import ENQUEUED_TOKENS
from ratelimits.limiter.decide import Call, decide
from ratelimits.models import Via
from ratelimits.money.budgets import budgets_of

from .adopt import BATCH_LEASE_SECONDS, LINES_AT_ONCE, hand_over

logger = logging.getLogger(__name__)

LINE_BYTES = 400  # the most that a line has besides its payload
DIVIDED_AT_ONCE = 500  # payloads in memory while jobs are divided by their APIs
NO_ROOM_SECONDS = 60.0  # how long a full queue at the provider, or a full limit, holds the next batch back


class Group(NamedTuple):
    """Jobs that may be in one batch. `seconds`: how long the longest waiting job has not moved."""

    project_id: str
    kind: str
    service: str
    credential: str
    model: str
    jobs: int
    seconds: float


class Chosen(NamedTuple):
    id: UUID
    token: int
    complete_by: datetime
    bytes: int
    cost: int


_put_off: dict[tuple[str, ...], float] = {}  # groups for which there was no room, and until when (monotonic)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A kind's batch form, and the batch API that makes the kind's batches."""

    form: BatchForm
    api: BatchApi


def find_spoken(kind: str, provider: str) -> Spoken | None:
    """Find a kind's batch form and the provider's API in it. None: no handler here has both; another worker's may."""
    try:
        form = find_handler(kind).batch
    except UnknownKind:
        return None
    return Spoken(form, form.apis[provider]) if form and provider in form.apis else None


def collect_waiting(kinds: Collection[str]) -> list[UUID]:
    """
    Make batches of waiting jobs of these kinds, where enough jobs wait or one job has waited long enough.

    Returns:
        The batches, each committed with its lines and its jobs in progress. No provider was called.
    """
    own = settings.QUEUEOPS
    parameters = {"most": own.batch_most_jobs, "margin": own.batch_margin_seconds}
    made: list[UUID] = []
    searched = set(open_searches().values_list("kind", "service", "credential"))
    for group in run_sql_as(Group, "jobs", "find_batch_groups", parameters):
        if group.kind not in kinds or (group.jobs < own.batch_most_jobs and group.seconds < own.batch_collect_seconds):
            continue
        # A provider's batch that has no row here may have the group's jobs.
        if (group.kind, group.service, group.credential) in searched:
            continue
        if _put_off.get(group[:5], 0.0) > time.monotonic():
            continue
        try:
            made += _collect(group)
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # otherwise one bad group would block all others and every open batch
            logger.exception("what waits for a batch of %s (%s) was not collected", group.service, group.model)
    return made


def open_searches() -> QuerySet[BatchSearch]:
    """Return the searches that are not closed yet: no new batch is made of the jobs that they concern."""
    return BatchSearch.objects.filter(closed_at=None)


def room_was_made() -> None:
    """Let groups that were put off be tried again: a batch that held tokens or money has ended."""
    _put_off.clear()


def _put_off_group(group: Group) -> None:
    """Try the group again later: each try locks, reads and measures as many jobs as a batch has."""
    now = time.monotonic()
    for key in [key for key, until in list(_put_off.items()) if until <= now]:
        _put_off.pop(key, None)  # another thread's `room_was_made` may have emptied it
    _put_off[group[:5]] = now + NO_ROOM_SECONDS


@transaction.atomic
def _collect(group: Group) -> list[UUID]:
    """
    Make a batch for each API that waiting jobs of the group go by: a batch has lines of one API alone.

    All APIs have their turn in one round. If one had to wait for the others, a stream of their jobs would starve it.
    """
    spoken, provider = _spoken_by(group)
    if spoken is None or _is_refused(group):
        return []
    most, most_bytes = _bounds_of(spoken.api)
    chosen: Sequence[Chosen] = run_sql_as(
        Chosen,
        "jobs",
        "choose_batch_jobs",
        {
            **_names_of(group),
            "project": group.project_id,
            "most": most,
            "most_bytes": most_bytes,
            "margin": settings.QUEUEOPS.batch_margin_seconds,
        },
    )
    made = []
    for name, jobs in _by_api(chosen, group, spoken.form, first=provider).items():
        batch = _make(_fitting(jobs, spoken.form.apis[name]), group, name)
        if batch is None:
            _put_off_group(group)
        else:
            made.append(batch)
    return made


def _make(chosen: Sequence[Chosen], group: Group, provider: str) -> UUID | None:
    """Make a batch of the first of these jobs that there is room and money for; None: there is no room or money."""
    own, batch_id = settings.QUEUEOPS, new_id()
    affordable = _affordable(chosen, group)
    if affordable is not None:
        payable = {line.id for line in affordable.jobs}
        chosen = [job for job in chosen if job.id in payable]
    chosen = _admitted(chosen, batch_id, group)
    if not chosen:
        return None
    if affordable is not None:
        going = {job.id for job in chosen}
        affordable.hold([line for line in affordable.jobs if line.id in going])
    complete_by = min(job.complete_by for job in chosen)
    batch = ProviderBatch.objects.create(
        id=batch_id,
        project_id=group.project_id,
        **_names_of(group),
        provider=provider,
        lines=len(chosen),
        size_bytes=sum(job.bytes for job in chosen),
        enqueued_tokens=sum(job.cost for job in chosen),
        complete_by=complete_by,
        live_at=complete_by - timedelta(seconds=own.batch_margin_seconds),
        create_before=Now(),
    )
    ProviderBatchLine.objects.bulk_create(
        [
            ProviderBatchLine(provider_batch=batch, number=number, job_id=job.id, token=job.token)
            for number, job in enumerate(chosen)
        ],
        batch_size=LINES_AT_ONCE,
    )
    hand_over(batch, {job.id: job.token for job in chosen}, message=f"collected for a batch of {group.service}")
    return batch.pk


def _names_of(group: Group) -> dict[str, str]:
    return {name: getattr(group, name) for name in ("kind", "service", "credential", "model")}


def _bounds_of(api: BatchApi) -> tuple[int, int]:
    """The most jobs of a batch, and the most bytes that their payloads may have together."""
    most = min(settings.QUEUEOPS.batch_most_jobs, api.most_lines)
    return most, max(1, api.most_bytes - LINE_BYTES * most)


def _fitting(jobs: Sequence[Chosen], api: BatchApi) -> Sequence[Chosen]:
    """Return the first jobs that fit a batch of this API, at least one; they were chosen by another API's bounds."""
    most, most_bytes = _bounds_of(api)
    count = sum(until <= most_bytes for until in accumulate(job.bytes for job in jobs))
    return jobs[: max(1, min(most, count))]


def _by_api(chosen: Sequence[Chosen], group: Group, form: BatchForm, *, first: str) -> dict[str, list[Chosen]]:
    """
    Divide jobs by the API that their payloads go by; the order within each stays.

    Jobs that no API takes are put with the first API's: they go live as its batch is composed.
    """
    found: dict[str, list[Chosen]] = {}
    names = _apis_of([job.id for job in chosen], group) if len(form.apis) > 1 else {}
    for job in chosen:
        name = names.get(job.id, first)
        found.setdefault(name if name in form.apis else first, []).append(job)
    return found


def _apis_of(ids: Sequence[UUID], group: Group) -> dict[UUID, str]:
    base_url, found = base_url_of(group.credential), dict[UUID, str]()
    for start in range(0, len(ids), DIVIDED_AT_ONCE):
        rows = Job.objects.filter(pk__in=ids[start : start + DIVIDED_AT_ONCE])
        for job, payload in rows.values_list("pk", "payload"):
            found[job] = _api_of(group.kind, payload, base_url)
    return found


def _affordable(chosen: Sequence[Chosen], group: Group) -> Affordable[ChosenLine] | None:
    """Return the chosen jobs that budgets can pay for; None: the project has no budget."""
    if not budgets_of(group.project_id):
        return None
    now, tokens = database_now(), {job.id: job.token for job in chosen}
    lines = [
        ChosenLine(
            id=job.pk,
            token=tokens[job.pk],
            project=job.project_id,
            user_id=job.user_id,
            batch_id=job.batch_id,
            kind=job.kind,
            payload=to_json(job.payload).decode(),
            service=job.service,
            model=job.model,
            claimed_at=now,
        )
        for job in Job.objects.filter(pk__in=tokens).order_by("complete_by", "pk")
    ]
    return afford(lines, lease_seconds=BATCH_LEASE_SECONDS, via=Via.BATCH)


def _spoken_by(group: Group) -> tuple[Spoken | None, str]:
    """Find the API by the group's first payload; `_by_api` finds the others."""
    waiting = Job.objects.filter(
        project_id=group.project_id,
        **_names_of(group),
        via="batch",
        status__in=["queued", "retried"],
        scheduled_at__isnull=False,
        held=False,
    )
    provider = provider_of(group.kind, waiting.order_by("scheduled_at", "id"))
    return find_spoken(group.kind, provider), provider


def provider_of(kind: str, jobs: QuerySet[Job]) -> str:
    """The name of the API that the first of these jobs goes by; empty: this process knows no API for it."""
    payload, credential = jobs.values_list("payload", "credential").first() or (None, None)
    return _api_of(kind, payload, base_url_of(credential))


def _api_of(kind: str, payload: Any, base_url: str) -> str:
    try:
        handler = find_handler(kind)
        if handler.batch is None:
            return ""
        return handler.batch.api_of(handler.schema.validate_json(to_json(payload)), base_url)
    except (UnknownKind, ValueError):
        return ""


def _is_refused(group: Group) -> bool:
    """Whether the provider has just refused a batch because too much is enqueued."""
    alike = ProviderBatch.objects.filter(service=group.service, credential=group.credential, model=group.model)
    return alike.filter(found_no_room=True, closed_at__gt=Now() - timedelta(seconds=NO_ROOM_SECONDS)).exists()


def _admitted(chosen: Sequence[Chosen], batch_id: UUID, group: Group) -> Sequence[Chosen]:
    """
    Return the first jobs that the limits of enqueued tokens have room for. Their tokens are held until the batch ends.
    """
    while chosen:
        call = enqueued_call(group, batch_id, sum(job.cost for job in chosen))
        [decision] = decide([call], units=frozenset({ENQUEUED_TOKENS}))
        if decision.kind == "proceed":
            return chosen
        room = 0.0 if decision.binding is None else decision.binding.available
        until = list(accumulate(job.cost for job in chosen))
        chosen = chosen[: min(len(chosen) - 1, sum(tokens <= room for tokens in until))]
    return chosen


def enqueued_call(of: Group | ProviderBatch, batch_id: UUID, tokens: int) -> Call:
    """Return the call that holds a batch's enqueued tokens until it ends."""
    subject = subject_of(
        service=of.service,
        call_type=find_handler(of.kind).call_type.value,
        model=of.model,
        project=of.project_id,
        user="",
        principals=find_principals({of.credential}).get(of.credential, ("", "")),
    )
    return Call(
        subject,
        cost=0,
        holder=holder_of_batch(batch_id),
        kind=of.kind,
        hold_seconds=BATCH_LEASE_SECONDS,
        amounts={ENQUEUED_TOKENS: tokens},
    )


def holder_of_batch(batch_id: UUID) -> str:
    """The name under which a batch holds its enqueued tokens."""
    return f"provider_batch:{batch_id}"


def seconds_left(batch: ProviderBatch) -> float:
    """The seconds until the batch's undone jobs go live."""
    return batch.live_at.timestamp() - database_now()
