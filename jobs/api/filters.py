"""Filters of the queue's lists."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import django_filters
from django.db.models import Q, QuerySet

from jobs.models import (
    Batch,
    BulkOperation,
    DeadLetter,
    Job,
    Resolution,
    Way,
)
from jobs.services.explain.verdicts import narrowed
from jobs.services.operate.scheduled_jobs import scheduled
from jobs.states import BatchVerdict, EventType, JobState, Priority
from queueops.core.values.identifiers import first_id_at
from queueops.rest.filtering import ChoicesFilter, FilterSet, MomentFilter, TagsFilter, TruthFilter

# A web process's clock makes an id, the database's clock created_at; they may differ by this.
CLOCK_SLACK = timedelta(hours=1)


class CreatedFilterSet(FilterSet):
    created_after = MomentFilter(field_name="created_at", lookup_expr="gte")
    created_before = MomentFilter(field_name="created_at", lookup_expr="lt")


class TimeOrderedFilterSet(CreatedFilterSet):
    """Bounds the ids, too: they are UUIDv7, so the primary key finds the time."""

    created_after = MomentFilter(field_name="created_at", method="since")
    created_before = MomentFilter(field_name="created_at", method="until")

    def since(self, queryset: QuerySet[Any], name: str, moment: datetime) -> QuerySet[Any]:
        return queryset.filter(created_at__gte=moment, pk__gte=first_id_at(moment, moved_by=-CLOCK_SLACK))

    def until(self, queryset: QuerySet[Any], name: str, moment: datetime) -> QuerySet[Any]:
        return queryset.filter(created_at__lt=moment, pk__lt=first_id_at(moment, moved_by=CLOCK_SLACK))


class TaggedFilterSet(TimeOrderedFilterSet):
    tags = TagsFilter(lookup_expr="tagged", help_text="All of these.")
    any_tag = TagsFilter(lookup_expr="tagged_any", help_text="One of these, or several.")


class JobFilterSet(TaggedFilterSet):
    state = ChoicesFilter(field_name="status", choices=JobState.choices)
    priority = ChoicesFilter(choices=Priority.choices)
    batch = django_filters.UUIDFilter(field_name="batch_id")
    user = django_filters.UUIDFilter(field_name="user_id")
    held = TruthFilter()
    scheduled = TruthFilter(
        method="by_time", help_text="true: queued, and `scheduled_at` is to come; false: all the others."
    )
    via = ChoicesFilter(choices=Way.choices, method="by_way", help_text="live: also those whose `via` is null.")

    class Meta:
        model = Job
        fields = ("kind", "service", "model", "idempotency_key", "last_error_code")

    def by_way(self, queryset: QuerySet[Any], name: str, ways: list[str]) -> QuerySet[Any]:
        return queryset.filter(Q(via__in=ways) | Q(via=None) if Way.LIVE in ways else Q(via__in=ways))

    def by_time(self, queryset: QuerySet[Any], name: str, wanted: Any) -> QuerySet[Any]:
        return queryset.filter(scheduled()) if wanted else queryset.exclude(scheduled())


class BatchJobFilterSet(JobFilterSet):
    batch = None


class BatchFilterSet(TaggedFilterSet):
    finished = TruthFilter(field_name="finished_at", lookup_expr="isnull", exclude=True)
    paused = TruthFilter()
    verdict = ChoicesFilter(choices=BatchVerdict.choices, method="by_verdict")

    class Meta:
        model = Batch
        fields = ("name",)

    def by_verdict(self, queryset: QuerySet[Any], name: str, verdicts: list[str]) -> QuerySet[Any]:
        return narrowed(queryset, verdicts)


class EventFilterSet(CreatedFilterSet):
    job = django_filters.UUIDFilter(field_name="job_id")
    batch = django_filters.UUIDFilter(field_name="batch_id")
    event_type = ChoicesFilter(choices=EventType.choices)
    to_state = ChoicesFilter(field_name="to_status", choices=JobState.choices)


class JobEventFilterSet(EventFilterSet):
    job = None
    batch = None


class DeadLetterFilterSet(TimeOrderedFilterSet):
    batch = django_filters.UUIDFilter(field_name="batch_id")
    job = django_filters.UUIDFilter(field_name="job_id")
    resolution = ChoicesFilter(choices=Resolution.choices)
    open = TruthFilter(field_name="resolution", lookup_expr="isnull")

    class Meta:
        model = DeadLetter
        fields = ("kind", "service", "fingerprint", "error_code")


class OperationFilterSet(TimeOrderedFilterSet):
    status = ChoicesFilter(choices=BulkOperation.Status.choices)

    class Meta:
        model = BulkOperation
        fields = ("action",)


class AuditFilterSet(CreatedFilterSet):
    """Filters the table of the audit trail, and its view."""

    actor = django_filters.CharFilter(help_text="`user:<id>`, `key:<prefix>`, `token:<issuer>:<user>`, …")
    action = django_filters.CharFilter()
    target = django_filters.CharFilter(help_text="In full, such as `job <id>`.")
    order = django_filters.ChoiceFilter(
        choices=[("newest", "newest"), ("oldest", "oldest")],
        method="as_the_view_does",
        help_text="`oldest`: for a collector, which goes on from where it was. Without: `newest` first.",
    )
    all_projects = TruthFilter(
        method="as_the_view_does",
        help_text="`true`: of every project, and of none. For people with a session alone.",
    )

    def as_the_view_does(self, queryset: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        """Leave rows as they are: the pages set the order, and the view chooses the rows."""
        return queryset
