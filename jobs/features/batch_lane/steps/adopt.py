"""Decides which of the provider's batches belongs to a row of ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Q

from jobs.handlers.batch_form import Remote
from jobs.models import Job, ProviderBatch, ProviderBatchLine, Way
from jobs.states import RUNNING, WAITING
from jobs.transitions import Lease, Move, move_jobs
from queueops.audit import trail
from queueops.core.clock import Now

logger = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 1.0
BATCH_LEASE_SECONDS = 90 * 86_400.0  # never to lapse: the batch's row, not the lease, says who goes on with its jobs
LINES_AT_ONCE = 5_000
MAX_STATE_LENGTH = 40  # of the provider's own word, as the row keeps it
ACTOR = "system:batch lane"

State = ProviderBatch.State


def adopt(batch: ProviderBatch, remote: Remote, *, by_count: bool = False) -> bool:
    """
    Give the row a batch that the provider has made. Return False if the row is not in the state CREATING any more.

    Args:
        by_count: The batch was matched by its count of lines alone.
    """
    adopted = ProviderBatch.objects.filter(pk=batch.pk, state=State.CREATING).update(
        state=State.OPEN,
        provider_id=remote.id,
        provider_state=remote.state[:MAX_STATE_LENGTH],
        found_by_count=by_count,
        files={**batch.files, **remote.files},
        submitted_at=Now(),
        progressed_at=Now(),
        look_at=Now() + timedelta(seconds=FIRST_LOOK_SECONDS),
        faults=0,
        error="",
    )
    return bool(adopted)


def known_ids(batch: ProviderBatch) -> frozenset[str]:
    """
    The provider's ids of our other recent batches, whatever their credential: two credentials may be of one account.
    """
    others = ProviderBatch.objects.filter(provider=batch.provider).exclude(pk=batch.pk)
    recent = others.filter(created_at__gt=batch.created_at - timedelta(days=3)).exclude(provider_id="")
    return frozenset(recent.values_list("provider_id", flat=True))


def find_siblings(batch: ProviderBatch, lines: int) -> list[ProviderBatch]:
    """Return our other rows that lack a provider's id and may own a provider's batch with this number of lines."""
    asked = ProviderBatch.objects.filter(provider=batch.provider, provider_id="", creations__gt=0).exclude(pk=batch.pk)
    unread = Count("all_lines", filter=Q(all_lines__state__in=ProviderBatchLine.UNREAD))
    # The provider may still work on a batch whose jobs went live at the deadline.
    went_live = Q(handed_back__gt=0) | Q(unanswered__gt=0)
    given_up = Q(went_live, state=State.CANCELLED, created_at__gt=batch.created_at - timedelta(days=1))
    maybe = asked.filter(Q(state=State.CREATING) | given_up).annotate(unread=unread)
    return list(maybe.filter(Q(unread=lines) | Q(lines=lines)))


@transaction.atomic
def give_away(batch: ProviderBatch, remote: Remote, owner: UUID | None) -> None:
    """
    Detach a provider's batch from the row that it was matched to by its count of lines: its results name another row.
    If that row still waits for a batch, it adopts this one.
    """
    ProviderBatch.objects.filter(pk=batch.pk, state=State.OPEN).update(
        state=State.CREATING,
        provider_id="",
        provider_state="",
        found_by_count=False,
        done=0,
        submitted_at=None,
        look_at=Now(),
        error=f"{remote.id} has as many lines, and its results are of {owner or 'nobody here'}",
    )
    other = ProviderBatch.objects.filter(pk=owner, state=State.CREATING).first() if owner else None
    is_taken = other is not None and adopt(other, remote)
    logger.warning("provider batch %s: %s is of %s, which takes it: %s", batch.pk, remote.id, owner, is_taken)


class Stray(StrEnum):
    """The fate of a provider's batch that has no row here."""

    TAKEN_IN = "goes on here"
    KNOWN = "a row here looks for it"
    NOT_OURS = "none of its jobs waits here"
    LATER = "some of its jobs are in other hands"


@transaction.atomic
def take_in(batch_id: UUID, remote: Remote, jobs: Mapping[int, UUID], *, kind: str, provider: str) -> Stray:
    """
    Make a row for a provider's batch that was made after the restored moment.

    The batch's jobs that wait here are in progress from now on.

    Jobs that were submitted after the restored moment are not here: their results stay at the provider.

    Args:
        jobs: The id of each line's job, by the line's number.
    """
    rows = Job.objects.filter(pk__in=jobs.values(), kind=kind).defer("payload", "result")
    here = {job.pk: job for job in rows.select_for_update(of=("self",)).order_by("pk")}
    if any(job.status in RUNNING for job in here.values()):
        return Stray.LATER
    lines = {
        line: here[job_id]
        for line, job_id in jobs.items()
        if job_id in here and here[job_id].status in WAITING and here[job_id].via is not None
    }
    deadlines = [job.complete_by for job in lines.values() if job.complete_by]
    if not deadlines:
        return Stray.NOT_OURS
    first, missing = next(iter(lines.values())), len(set(jobs.values()) - here.keys())
    batch = ProviderBatch.objects.create(
        id=batch_id,
        project_id=first.project_id,
        kind=kind,
        service=first.service,
        credential=first.credential or "",
        model=first.model or "",
        provider=provider,
        state=State.OPEN,
        provider_id=remote.id,
        provider_state=remote.state[:MAX_STATE_LENGTH],
        files=dict(remote.files),
        is_kept=True,
        lines=max(jobs) + 1,
        enqueued_tokens=sum(job.cost for job in lines.values()),
        unknown_lines=missing,
        complete_by=min(deadlines),
        live_at=min(deadlines) - timedelta(seconds=settings.QUEUEOPS.batch_margin_seconds),
        create_before=Now(),
        creations=1,
        submitted_at=remote.made_at or Now(),
    )
    with connection.cursor() as cursor:  # the jobs are locked: no earlier claim of them has a later token
        cursor.execute("SELECT nextval('jobs_fencing_token')")
        token: int = cursor.fetchall()[0][0]
    ProviderBatchLine.objects.bulk_create(
        [
            ProviderBatchLine(provider_batch=batch, number=line, job_id=job.pk, token=token)
            for line, job in lines.items()
        ],
        batch_size=LINES_AT_ONCE,
    )
    hand_over(batch, {job.pk: token for job in lines.values()}, message=f"found in {remote.id} after a restore")
    trail.record(
        actor=ACTOR,
        action="take_in_provider_batch",
        target=f"provider batch {batch.pk}",
        after={"provider_id": remote.id, "jobs": len(lines), "jobs_not_here": missing},
        moved=len(lines),
        project_id=batch.project_id,
    )
    return Stray.TAKEN_IN


def hand_over(batch: ProviderBatch, tokens: Mapping[UUID, int], *, message: str) -> None:
    """Claim jobs for a batch, in the caller's transaction: each with the fencing token of its line."""
    move_jobs(
        "claim",
        [
            Move(
                job_id,
                token=token,
                data=f'{{"executor": "{batch.pk}", "fencing_token": {token}, "provider_batch": "{batch.pk}"}}',
            )
            for job_id, token in tokens.items()
        ],
        message=message,
        lease=Lease(batch.pk, BATCH_LEASE_SECONDS, via=Way.BATCH.value),
    )
