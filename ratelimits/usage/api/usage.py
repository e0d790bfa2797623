"""Allowances: reserve units, report what was used, give a reservation back, see how a user stands."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID, uuid5

import django_filters
from django.core.validators import RegexValidator
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework.request import Request
from rest_framework.response import Response

from queueops.core.errors import ForeignUser
from queueops.rest.errors import InvalidInput, InvalidQuery
from queueops.rest.filtering import FilterSet, TruthFilter
from queueops.rest.schema import operation
from queueops.rest.views import CallerListView, CallerView, Row
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.usage.ingest import Reported, Result, ingest
from ratelimits.usage.models import UsageEvent, UsageTracking
from ratelimits.usage.month_end import MONTH
from ratelimits.usage.release import cancel
from ratelimits.usage.reserve import reserve
from ratelimits.usage.standings import standing

from . import answers, examples, inputs
from .events import Malformed, Reading, read_events
from .serializers import UsageEventSerializer, UserMonthSerializer

SEE = Need(Scope.USAGE, "ratelimits.view_usagetracking")
SEE_EVENTS = Need(Scope.USAGE, "ratelimits.view_usageevent")
REPORT = Need(Scope.USAGE, "ratelimits.add_usageevent")
CANCEL = Need(Scope.USAGE, "ratelimits.cancel_reservation")

UNNAMED_USER = "Name the user: a server key belongs to none."


def user_of(caller: Caller, named: UUID | None) -> UUID:
    """
    Return the user for whom this is done.

    Raises:
        ForeignUser: A user's token names somebody else.
        InvalidInput: Nobody is named, and the caller is no user.
    """
    if caller.user_id is None:
        if named is None:
            raise InvalidInput(fields={"user_id": [UNNAMED_USER]})
        return named
    if named not in (None, caller.user_id):
        raise ForeignUser(fields={"user_id": ["Must be your own; leave it out."]})
    return caller.user_id


def operator_of(caller: Caller) -> str:
    """The operator whom the audit trail names. Empty for keys and users: the ledger itself records what they do."""
    return caller.actor if caller.operator else ""


def of_user(rows: QuerySet[Row], user_id: UUID | None) -> QuerySet[Row]:
    return rows if user_id is None else rows.filter(user_id=user_id)


class UserMonthFilterSet(FilterSet):
    user_id = django_filters.UUIDFilter()
    month = extend_schema_field({"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"})(
        django_filters.CharFilter(field_name="month_year", validators=[RegexValidator(MONTH, "Write it as 2026-03")])
    )


class UsageEventFilterSet(UserMonthFilterSet):
    over_limit = TruthFilter()


class ReserveUsageView(CallerView):
    for_users = True
    needs: ClassVar = {"POST": REPORT}

    @operation(
        "Reserve units before a call",
        operation_id="usage_reserve",
        body=inputs.ReserveUsage,
        body_example=examples.RESERVE,
        answer=answers.ReservedUnits,
        status=201,
        example=examples.RESERVED,
        errors=[409],
        description=(
            "Held until an event names the reservation, it is cancelled, or `expires_at`. 409 `quota_exceeded`: the "
            "quota has no room; `details` has `remaining`, `quota` and `resets_at`. 404 `no_allowance`: the project "
            "has none. The same `idempotency_key` gets the same answer, with the header `Idempotency-Replayed: true`. "
            "Also served as `POST /functions/reserve-usage`, and both without the last slash."
        ),
    )
    def post(self, request: Request, body: inputs.ReserveUsage) -> Response:
        user_id = user_of(self.caller, body.user_id)
        reserved = reserve(
            project_id=self.caller.project_id,
            user_id=user_id,
            amount=body.amount,
            idempotency_key=self._own_key(body.idempotency_key or self.idempotency_key()),
            actor=operator_of(self.caller),
        )
        answer = asdict(reserved)
        replayed = answer.pop("replayed")
        return Response(answer, 201, headers={"Idempotency-Replayed": "true"} if replayed else None)

    def _own_key(self, key: str | None) -> str | None:
        """
        Make a key the user's own: apps may number the calls of all users alike, and one user's key would refuse the
        others'.
        """
        own = self.caller.user_id
        return key if key is None or own is None else str(uuid5(own, key))


class IngestUsageView(CallerView):
    for_users = True
    needs: ClassVar = {"POST": REPORT}

    @operation(
        "Report calls that were made",
        operation_id="usage_ingest",
        body=inputs.IngestUsage,
        body_example=[examples.EVENT],
        answer=answers.IngestedUsage,
        example=examples.INGESTED,
        description=(
            "1 to 1,000 events, or a single one by itself; one result each, in order. Whatever is wrong with one event "
            "rejects that event alone. "
            "`duplicate`: counted before. `over_limit`: counted, beyond the quota. Safe to repeat as a whole. "
            "Also served as `POST /functions/ingest-usage`, and both without the last slash."
        ),
    )
    def post(self, request: Request) -> Response:
        own = self.caller.user_id
        readings = read_events(self.raw, user_id=own)
        reported = [reading.found for reading in readings if isinstance(reading.found, Reported)]
        actor = operator_of(self.caller)
        ingested = ingest(reported, project_id=self.caller.project_id, only_user=own, actor=actor)
        results = iter(ingested.results)
        outcomes = (one.found if isinstance(one.found, Malformed) else next(results) for one in readings)
        return Response(
            {
                "results": [_shown(one, outcome) for one, outcome in zip(readings, outcomes, strict=True)],
                "usage": [asdict(one) for one in ingested.standings],
            }
        )


def _shown(reading: Reading, outcome: Malformed | Result) -> dict[str, Any]:
    shown = {"event_id": reading.given_id, "status": outcome.status}
    return {**shown, "reason": outcome.reason, "message": outcome.message} if outcome.reason else shown


class CancelReservationView(CallerView):
    for_users = True
    needs: ClassVar = {"POST": CANCEL}

    @operation(
        "Give a reservation back",
        operation_id="usage_cancel",
        body=inputs.CancelReservation,
        body_example={"reservation_id": examples.RESERVATION_ID},
        answer=answers.CancelledReservation,
        example=examples.CANCELLED,
        description=(
            "Its units are released once. One that was used or is over stays as it is: `status` says which. Safe to "
            "repeat. Also served as `POST /functions/cancel-reservation`, and both without the last slash."
        ),
    )
    def post(self, request: Request, body: inputs.CancelReservation) -> Response:
        own = self.caller
        cancelled = cancel(
            body.reservation_id, project_id=own.project_id, only_user=own.user_id, actor=operator_of(own)
        )
        return Response(asdict(cancelled))


class UserStanding(CallerView):
    for_users = True
    needs: ClassVar = {"GET": SEE}

    @operation(
        "See what a user has left this month",
        operation_id="usage_me",
        answer=answers.StandingShown,
        example=examples.STANDING,
        errors=[422],
        query=inputs.OfUser,
        description="404 `no_allowance`: the project has none. Also served without the last slash.",
    )
    def get(self, request: Request, query: inputs.OfUser) -> Response:
        return Response(asdict(standing(self.caller.project_id, user_of(self.caller, query.user_id))))


class UserMonths(CallerListView[UsageTracking]):
    for_users = True
    needs: ClassVar = {"GET": SEE}
    serializer_class = UserMonthSerializer
    filterset_class = UserMonthFilterSet

    @operation(
        "List the users' months, newest first",
        operation_id="usage_months",
        answer=UserMonthSerializer(many=True),
        example=examples.USER_MONTH,
        description="For a back office. A user's token sees its own alone.",
    )
    def get(self, request: Request) -> Response:
        months = UsageTracking.objects.filter(project_id=self.caller.project_id)
        return self.listed(of_user(months, self.caller.user_id))


class UserEvents(CallerListView[UsageEvent]):
    for_users = True
    needs: ClassVar = {"GET": SEE_EVENTS}
    serializer_class = UsageEventSerializer
    filterset_class = UsageEventFilterSet

    @operation(
        "List a user's events, newest first",
        operation_id="usage_events",
        answer=UsageEventSerializer(many=True),
        example=examples.USAGE_EVENT,
        description="A server key names the user by `user_id`; a user's token sees its own.",
    )
    def get(self, request: Request) -> Response:
        own = self.caller.user_id
        if own is None and not request.query_params.get("user_id"):
            raise InvalidQuery(fields={"user_id": [UNNAMED_USER]})
        return self.listed(of_user(UsageEvent.objects.filter(project_id=self.caller.project_id), own))
