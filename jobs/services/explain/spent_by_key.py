"""Sums up what was spent by who submitted the jobs, and by the credential that their calls showed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce

from jobs.models import Batch, Job, JobEvent
from queueops.tenancy.models import ProducerKey
from queueops.tenancy.people import names_of
from ratelimits.models import Spend
from ratelimits.money.reports import SpendGroup, sums_by

MAX_CALLS = 100_000  # each needs its job, and without a batch its job's first event
OF_KEYS = "key:"
GONE = "not known: deleted, or gone on another way"


def spent_by_submitter(rows: QuerySet[Spend]) -> list[SpendGroup] | None:
    """Sum up by key, person or user: who submitted a job's batch, or, as the log says, a job that has none."""
    of_batch = Batch.objects.filter(pk=OuterRef("batch_id")).values("submitted_by")
    job = Job.objects.filter(pk=OuterRef("job_id")).values("created_at")
    # The bounds on the time leave one day of the log, or two, to look in.
    first = (
        JobEvent.objects.filter(job_id=OuterRef("job_id"), from_status=None, to_status="queued")
        .filter(created_at__gte=Subquery(job), created_at__lt=Subquery(job) + timedelta(seconds=1))
        .order_by("id")
        .values(by=Cast("message", TextField()))
    )
    found = _looked_at(rows, Coalesce(Subquery(of_batch[:1]), Subquery(first[:1]), output_field=TextField()))
    if found is None:
        return None
    names = _names([actor for actor, _ in found if actor])
    return [SpendGroup(names.get(actor, actor) if actor else GONE, spent) for actor, spent in found]


def spent_by_credential(rows: QuerySet[Spend]) -> list[SpendGroup] | None:
    """Sum up by credential: the one that a job showed its provider last; empty: it showed none."""
    # A job that went on another way has the credential of that way, which did not pay for calls before it.
    job = Job.objects.filter(pk=OuterRef("job_id"), service=OuterRef("provider"))
    found = _looked_at(rows, Subquery(job.values(shown=Coalesce("credential", Value("")))[:1]))
    return None if found is None else [SpendGroup(GONE if name is None else name, spent) for name, spent in found]


def _looked_at(rows: QuerySet[Spend], whose: Any) -> Any:
    if rows.order_by()[: MAX_CALLS + 1].count() > MAX_CALLS:
        return None
    return sums_by(rows.annotate(whose=whose), "whose")


def _names(actors: Iterable[str]) -> dict[str, str]:
    prefixes = [actor.removeprefix(OF_KEYS) for actor in actors if actor.startswith(OF_KEYS)]
    keys = ProducerKey.objects.filter(prefix__in=prefixes).values_list("prefix", "name")
    return {**names_of(actors), **{f"{OF_KEYS}{prefix}": f"key {name} ({prefix}…)" for prefix, name in keys}}
