"""Limits: list them with their live state; show, create, change and delete one; try a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from queueops.rest.errors import InvalidInput
from queueops.rest.filtering import ChoicesFilter, FilterSet, TruthFilter
from queueops.rest.schema import operation
from queueops.rest.views import CallerListView, CallerView
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.api.answers import Removed
from ratelimits.api.inputs import Reasoned
from ratelimits.errors import SharedLimit, UnknownLimit
from ratelimits.limiter.view.gauges import CounterGauge, gauges
from ratelimits.limits.catalogue import overrides_in_force
from ratelimits.limits.overrides import delete_override, set_override
from ratelimits.limits.save_limit import SavedLimit
from ratelimits.models import Counter, Limit, LimitCallType, LimitOverride, Unit
from ratelimits.subjects import counter_id
from ratelimits.tuning.limits import create_limit, delete_limit, update_limit
from ratelimits.tuning.simulate import simulate

from . import answers, examples, inputs
from .serializers import GaugeSerializer, LimitSerializer

READ = Need(Scope.READ, "ratelimits.view_limit")
ADD = Need(Scope.LIMITS, "ratelimits.add_limit")
CHANGE = Need(Scope.LIMITS, "ratelimits.change_limit")
DELETE = Need(Scope.LIMITS, "ratelimits.delete_limit")

# Limits belong to the installation: a change of a limit counts for every project.
WRITES = frozenset({"POST", "PATCH", "DELETE"})
SHOWN_COUNTERS = 20
EVERYONE = "*"  # the key of a limit that counts everyone together

OPERATORS = "For operators: to a project's key the answer is 403 `shared_limit`."


@dataclass(frozen=True, slots=True)
class Seen:
    """The overrides and gauges that one caller may see, by limit."""

    overrides: dict[int, list[LimitOverride]]
    gauges: dict[int, list[CounterGauge]]


def sees_all(caller: Caller) -> bool:
    """Whether the caller sees all counters: a project's key sees no other project's."""
    return caller.sees_all


def roots_of(caller: Caller) -> tuple[str, str]:
    """The beginnings of the keys that count everyone together, or the caller's project alone."""
    return EVERYONE, f"project:{caller.project_id}"


def may_see(caller: Caller, key: str) -> bool:
    return sees_all(caller) or any(f"{key}/".startswith(f"{root}/") for root in roots_of(caller))


def require_operator(caller: Caller) -> None:
    """
    Raises:
        SharedLimit: A project's key would change what counts for all projects.
    """
    if not caller.sees_all:
        raise SharedLimit


def require_own(caller: Caller, key: str) -> None:
    """
    Raises:
        InvalidInput: The key is another project's.
        SharedLimit: The key counts everyone together.
    """
    if not may_see(caller, key):
        raise InvalidInput(fields={"key": ["Must be one of your own project."]})
    if key.partition("/")[0] == EVERYONE:
        require_operator(caller)


def own_keys(caller: Caller, *, prefix: str = "", name: str = "key") -> Q:
    found = Q()
    for root in roots_of(caller):
        found |= Q(**{name: f"{prefix}{root}"}) | Q(**{f"{name}__startswith": f"{prefix}{root}/"})
    return found


def counters_of(caller: Caller, limit_ids: Sequence[int]) -> QuerySet[Counter]:
    """The counters of these limits that the caller may see."""
    rows = Counter.objects.filter(limit_id__in=limit_ids)
    if sees_all(caller) or not limit_ids:
        return rows
    seen = Q()
    for limit_id in limit_ids:  # by the primary key, as it has an index
        seen |= own_keys(caller, prefix=counter_id(limit_id, ""), name="pk")
    return rows.filter(seen)


def seen_by(caller: Caller, limits: Sequence[Limit]) -> Seen:
    limit_ids = [limit.pk for limit in limits]
    overrides = LimitOverride.objects.filter(limit_id__in=limit_ids).order_by("limit_id", "key")
    chosen: list[str] | None = None
    if not sees_all(caller):
        overrides = overrides.filter(own_keys(caller))
        chosen = list(counters_of(caller, limit_ids).order_by("-updated_at").values_list("pk", flat=True)[:1000])
    found = Seen({}, {})
    for override in overrides_in_force(overrides):
        found.overrides.setdefault(override.limit_id, []).append(override)
    for gauge in gauges(limit_ids, counter_ids=chosen, most=SHOWN_COUNTERS):
        shown = found.gauges.setdefault(gauge.limit_id, [])
        if len(shown) < SHOWN_COUNTERS:
            shown.append(gauge)
    return found


def saved(result: SavedLimit) -> dict[str, Any]:
    return {
        "id": result.limit_id,
        "changed": list(result.changed),
        "warnings": list(result.warnings),
        "url": f"/api/v1/limits/{result.limit_id}/",
    }


def limits_seen_by(caller: Caller) -> QuerySet[Limit]:
    """All limits but those of other projects."""
    rows = Limit.objects.all()
    return rows if sees_all(caller) else rows.filter(project__in=("", caller.project_id))


def find_seen(caller: Caller, limit_id: int) -> Limit:
    """
    Raises:
        UnknownLimit: No limit of this id exists, or the caller may not know of it.
    """
    limit = limits_seen_by(caller).filter(pk=limit_id).first()
    if limit is None:
        raise UnknownLimit(limit_id=limit_id)
    return limit


class LimitFilterSet(FilterSet):
    scope = ChoicesFilter(choices=Limit.Scope.choices)
    call_type = ChoicesFilter(choices=LimitCallType.choices)
    unit = ChoicesFilter(choices=Unit.choices)
    enabled = TruthFilter()
    shadow = TruthFilter()

    class Meta:
        model = Limit
        fields = ("service", "name", "model")


class LimitList(CallerListView[Limit]):
    unconfined = WRITES
    needs: ClassVar = {"GET": READ, "POST": ADD}
    serializer_class = LimitSerializer
    filterset_class = LimitFilterSet

    @operation(
        "List limits with their live state, newest first",
        operation_id="limits_list",
        answer=LimitSerializer(many=True),
        example=examples.LIMIT,
        description=f"Each with up to {SHOWN_COUNTERS} of its counters, the fullest first.",
    )
    def get(self, request: Request) -> Response:
        return self.listed(limits_seen_by(self.caller))

    def shown(self, page: Any) -> Any:
        return LimitSerializer(page, many=True, context={"seen": seen_by(self.caller, page)}).data

    @operation(
        "Create a limit",
        operation_id="limits_create",
        body=inputs.NewLimit,
        body_example=examples.FIGURES,
        answer=answers.Saved,
        status=201,
        example=examples.SAVED,
        description=(
            f"It counts from within a second on, in every process. `warnings` say what may surprise. {OPERATORS}"
        ),
    )
    def post(self, request: Request, body: inputs.NewLimit) -> Response:
        require_operator(self.caller)
        result = saved(create_limit(body.figures(), actor=self.caller.actor, reason=body.reason))
        return Response(result, 201, headers={"Location": result["url"]})


class LimitDetail(CallerView):
    unconfined = WRITES
    needs: ClassVar = {"GET": READ, "PATCH": CHANGE, "DELETE": DELETE}

    @operation(
        "Look at a limit",
        operation_id="limits_get",
        answer=LimitSerializer,
        example=examples.LIMIT,
    )
    def get(self, request: Request, pk: int) -> Response:
        limit = find_seen(self.caller, pk)
        return Response(LimitSerializer(limit, context={"seen": seen_by(self.caller, [limit])}).data)

    @operation(
        "Change a limit",
        operation_id="limits_change",
        body=inputs.ChangeLimit,
        body_example={"capacity": 600, "reason": "raised by the provider"},
        answer=answers.Saved,
        example=examples.SAVED,
        errors=[409],
        description=f"Takes effect within a second, in every process. {OPERATORS}",
    )
    def patch(self, request: Request, pk: int, body: inputs.ChangeLimit) -> Response:
        find_seen(self.caller, pk)
        require_operator(self.caller)
        result = update_limit(pk, body.figures(), actor=self.caller.actor, reason=body.reason, seen_at=body.seen_at)
        return Response(saved(result))

    @operation(
        "Delete a limit",
        operation_id="limits_delete",
        answer=Removed,
        example={"removed": True},
        query=Reasoned,
        description=f"With its overrides, counters and alerts. What it held back may go at once. {OPERATORS}",
    )
    def delete(self, request: Request, pk: int, query: Reasoned) -> Response:
        find_seen(self.caller, pk)
        require_operator(self.caller)
        delete_limit(pk, actor=self.caller.actor, reason=query.reason)
        return Response({"removed": True})


class LimitCounters(CallerListView[Counter]):
    needs: ClassVar = {"GET": READ}
    serializer_class = GaugeSerializer

    def get_queryset(self) -> QuerySet[Counter]:
        return Counter.objects.none()

    @operation(
        "List the counters of a limit, by key from the last to the first",
        operation_id="limits_counters",
        answer=GaugeSerializer(many=True),
        example=examples.GAUGE,
    )
    def get(self, request: Request, pk: int) -> Response:
        limit = find_seen(self.caller, pk)
        return self.listed(counters_of(self.caller, [limit.pk]))

    def shown(self, page: Sequence[Counter]) -> Any:
        ids = [counter.pk for counter in page]
        read = gauges([counter.limit_id for counter in page], counter_ids=ids)
        return GaugeSerializer(sorted(read, key=lambda gauge: ids.index(gauge.counter_id)), many=True).data


class LimitOverrides(CallerView):
    unconfined = WRITES
    needs: ClassVar = {"POST": CHANGE, "DELETE": CHANGE}

    @operation(
        "Give one key of a limit another capacity",
        operation_id="limits_set_override",
        body=inputs.SetOverride,
        body_example=examples.OVERRIDE,
        answer=answers.Saved,
        example=examples.SAVED,
        description="Or change the one it has; a project's key, for a key of its own project. Safe to repeat. With"
        " `ends_at` or `for_seconds` the key then has again what it had, at that moment also while nobody keeps house.",
    )
    def post(self, request: Request, pk: int, body: inputs.SetOverride) -> Response:
        find_seen(self.caller, pk)
        require_own(self.caller, body.key)
        result = set_override(
            pk,
            body.key,
            capacity=body.capacity,
            refill_per_second=body.refill_per_second,
            ends_at=body.end(),
            note=body.note,
            reason=body.reason,
            actor=self.caller.actor,
        )
        return Response(saved(result))

    @operation(
        "Let one key of a limit have the limit's own figures again",
        operation_id="limits_delete_override",
        answer=Removed,
        example={"removed": True},
        errors=[422],
        query=inputs.OfOverride,
        description="Safe to repeat: `removed` says whether it had others.",
    )
    def delete(self, request: Request, pk: int, query: inputs.OfOverride) -> Response:
        find_seen(self.caller, pk)
        require_own(self.caller, query.key)
        removed = delete_override(pk, query.key, actor=self.caller.actor, reason=query.reason)
        return Response({"removed": removed})


class SimulateLimit(CallerView):
    unconfined = WRITES
    needs: ClassVar = {"POST": CHANGE}

    @operation(
        "Play the last hours through other figures",
        operation_id="limits_simulate",
        body=inputs.Simulate,
        body_example={"changes": {"capacity": 600}, "hours": 1},
        answer=answers.Simulated,
        example=examples.SIMULATED,
        errors=[409],
        description="Changes nothing. Both sides are played as if this limit alone held calls back.",
    )
    def post(self, request: Request, pk: int, body: inputs.Simulate) -> Response:
        find_seen(self.caller, pk)
        played = asdict(simulate(pk, body.changes.figures(), hours=body.hours))
        for side in (played["today"], played["proposed"]):
            if not may_see(self.caller, side["busiest_key"]):
                side["busiest_key"] = ""
        return Response(played)
