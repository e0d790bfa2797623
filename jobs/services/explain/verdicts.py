"""
Verdicts on batches, one word each. The words are in jobs/states.py; the expression here decides for lists and pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Case, CharField, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from jobs.features.batch_guards import guards
from jobs.features.served_kinds.served_kinds import INVALID_PAYLOAD, KEY_MISSING
from jobs.models import Batch, BudgetWait, Dependency, Job, JobCount, PauseSwitch, RefusedCalls
from jobs.models.job import IN_SEVERAL_CALLS
from jobs.querysets import JobQuerySet
from jobs.services.operate.job_filter import held_by_outage
from jobs.states import RUNNING, TERMINAL, WAITING, BatchVerdict, GuardState, JobState
from queueops.tenancy.scope import for_everyone

from .waiting import explain_stop

LOOKED_AT = 1_000  # waiting jobs of a batch that are searched for a job that nothing holds
# The columns by which pauses, outages and credentials stop jobs.
STOPPED_ALIKE = ("project_id", "kind", "service", "target", "credential", "model", "lane", "pool")
V = BatchVerdict
OPEN = (V.WAITING, V.HELD, V.RUNNING)


class ToldVerdict(NamedTuple):
    """`held_by`: what stops the batch, in words for people; None: nothing does."""

    verdict: BatchVerdict
    held_by: str | None


def verdicts_of(batches: Iterable[Batch]) -> dict[UUID, ToldVerdict]:
    """
    Return the verdict of each batch from the present counters and switches, with a few reads for all of them.

    The reason of a held batch is a pause of the batch, its project or everything; if there is none, it is the reason of
    the batch's first waiting job. Each reason of a job takes about six more reads.
    """
    rows = {batch.pk: batch for batch in batches}
    with for_everyone():
        stopping = _switches()
        found = with_verdicts(Batch.objects.filter(pk__in=rows), stopping).values_list("pk", "verdict")
        verdicts = {pk: BatchVerdict(verdict) for pk, verdict in found}
        reasons = _held_by([rows[pk] for pk, verdict in verdicts.items() if verdict == V.HELD], stopping)
    # A batch that was deleted meanwhile had ended.
    return {pk: ToldVerdict(verdicts.get(pk, V.SUCCEEDED), reasons.get(pk)) for pk in rows}


def narrowed(rows: QuerySet[Any], wanted: Sequence[str]) -> QuerySet[Any]:
    """Keep the batches that have one of these verdicts."""
    if all(verdict in OPEN for verdict in wanted):
        rows = rows.filter(finished_at=None)  # uses the index of unfinished batches; all other batches have ended
    with for_everyone():
        stopping = _switches()
    return with_verdicts(rows, stopping).filter(verdict__in=wanted)


def with_verdicts(rows: QuerySet[Any], stopping: Sequence[PauseSwitch]) -> QuerySet[Any]:
    """
    Add the column `verdict`. `states.verdict_of_ended` gives the same for ended batches; a test compares the two.

    Args:
        stopping: The switches of projects and of everything. The caller reads them, as not every reader may see them.
    """
    ended_well, failed, cancelled = (Sum(state) for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED))
    said = Case(
        When(running=0, waiting=0, then=_ended()),
        When(_is_stopped(stopping), then=Value(V.HELD)),
        When(running__gt=0, then=Value(V.RUNNING)),
        When(~Exists(_tried()) & ~Exists(_free()), then=Value(V.HELD)),
        When(Q(ended__gt=0) | Q(retried__gt=0) | Q(Exists(_begun())), then=Value(V.RUNNING)),
        default=Value(V.WAITING),
        output_field=CharField(),
    )
    # Keep all in one subquery: an expression that is used twice would be evaluated twice.
    sums = JobCount.objects.filter(batch_id=OuterRef("pk")).order_by().values("project_id", "batch_id")
    sums = sums.annotate(running=_sum(RUNNING), waiting=_sum(WAITING), ended=_sum(TERMINAL))
    sums = sums.annotate(retried=Sum(JobState.RETRIED))
    sums = sums.annotate(ended_well=ended_well, ended_badly=failed, ended_early=cancelled)
    told = Subquery(sums.annotate(said=said).values("said")[:1])
    judged: QuerySet[Any] = rows.annotate(verdict=Coalesce(told, Value(V.SUCCEEDED), output_field=CharField()))
    return judged


def _ended() -> Case:
    return Case(
        When(ended_badly=0, ended_early=0, then=Value(V.SUCCEEDED)),
        When(ended_well=0, ended_badly__gt=0, then=Value(V.FAILED)),
        When(ended_early__gte=F("ended_well") + F("ended_badly"), then=Value(V.CANCELLED)),
        default=Value(V.SUCCEEDED_WITH_FAILURES),
        output_field=CharField(),
    )


def _sum(states: Iterable[JobState]) -> Combinable:
    first, *others = sorted(states)
    total: Combinable = Sum(first.value)
    for state in others:
        total = total + Sum(state.value)
    return total


def _switches() -> list[PauseSwitch]:
    scopes = (PauseSwitch.Scope.GLOBAL, PauseSwitch.Scope.PROJECT)
    return list(PauseSwitch.objects.filter(scope__in=scopes).order_by("created_at"))


def _is_stopped(stopping: Sequence[PauseSwitch]) -> Q:
    is_stopped = Q(Exists(Batch.objects.filter(pk=OuterRef("batch_id"), paused=True)))
    is_stopped |= Q(project_id__in=[one.key for one in stopping if one.key])
    if any(one.scope == PauseSwitch.Scope.GLOBAL for one in stopping):
        is_stopped |= ~Q(project_id=PauseSwitch.EXEMPT)
    return is_stopped


def _tried() -> QuerySet[Batch]:
    """Return the batch if its first jobs are on trial: one of these may be free although `_free` finds no free job."""
    return Batch.objects.filter(pk=OuterRef("batch_id"), guard_state=GuardState.TRIAL)


def _begun() -> JobQuerySet:
    """Return a batch's unfinished jobs that take several calls and have begun; JobCount has no column for them."""
    return Job.objects.filter(IN_SEVERAL_CALLS, batch_id=OuterRef("batch_id"))


def _free() -> JobQuerySet:
    """Return the unheld jobs among a batch's first waiting jobs, without the probes that are sent for held jobs."""
    waiting = Job.objects.filter(batch_id=OuterRef(OuterRef("batch_id")), status__in=sorted(WAITING)).order_by()
    first = Job.objects.filter(pk__in=waiting.values("pk")[:LOOKED_AT])
    probes = RefusedCalls.objects.exclude(probe_job_id=None).values("probe_job_id")
    return first.filter(held=False).exclude(held_by_outage()).exclude(pk__in=probes)


def _held_by(batches: Sequence[Batch], stopping: Sequence[PauseSwitch]) -> dict[UUID, str | None]:
    paused = [str(batch.pk) for batch in batches if batch.paused]
    own = {one.key: one for one in PauseSwitch.objects.filter(scope=PauseSwitch.Scope.BATCH, key__in=paused)}
    told: dict[UUID, str | None] = {}
    for batch in batches:
        of_all = (one for one in stopping if one.key == batch.project_id or one.scope == PauseSwitch.Scope.GLOBAL)
        switch = own.get(str(batch.pk)) or next(of_all, None)
        if batch.paused and batch.guard_state == GuardState.STOPPED and batch.guard:
            told[batch.pk] = f"its guard: {guards.told(batch.guard)}"
        elif switch is not None:
            told[batch.pk] = _words(switch)
    return told | _held_by_first_job([batch for batch in batches if batch.pk not in told])


def _words(switch: PauseSwitch) -> str:
    whose = {PauseSwitch.Scope.BATCH: "of it", PauseSwitch.Scope.GLOBAL: "of everything"}
    words = f"a pause {whose.get(PauseSwitch.Scope(switch.scope), f'of project {switch.key}')}"
    return f"{words}: {switch.reason}" if switch.reason else words


def _held_by_first_job(batches: Sequence[Batch]) -> dict[UUID, str | None]:
    """Explain batches by their first waiting jobs; a reason that holds many batches is determined once."""
    waiting = Job.objects.filter(batch_id=OuterRef("pk"), status__in=sorted(WAITING)).order_by()
    first = Batch.objects.filter(pk__in=[batch.pk for batch in batches]).annotate(first=waiting.values("pk")[:1])
    jobs = list(Job.objects.filter(pk__in=[*first.values_list("first", flat=True)]).defer("payload"))
    owners = [one for job in jobs for one in (job.pk, job.batch_id) if one is not None]
    alone: set[UUID | None] = {*Dependency.objects.filter(owner_id__in=owners).values_list("owner_id", flat=True)}
    alone |= {*BudgetWait.objects.filter(pk__in=[job.pk for job in jobs]).values_list("pk", flat=True)}
    alone |= {batch.pk for batch in batches if batch.guard_state == GuardState.TRIAL}
    told: dict[object, str | None] = {}
    found: dict[UUID | None, str | None] = {}
    for job in jobs:
        key: object = (job.held, *(getattr(job, name) for name in STOPPED_ALIKE))
        if job.last_error_code in (INVALID_PAYLOAD, KEY_MISSING) or {job.pk, job.batch_id} & alone:
            key = job.pk
        if key not in told:
            told[key] = explain_stop(job)
        found[job.batch_id] = told[key]
    return {batch.pk: found.get(batch.pk) for batch in batches}
