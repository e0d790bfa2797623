"""Asking the limiter, and telling it how a call ended."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from queueops.rest.errors import InvalidInput
from queueops.rest.parsers import digest_of
from queueops.rest.schema import operation
from queueops.rest.views import CallerView
from queueops.tenancy.callers.authentication import OperatorSessionAuthentication, TokenAuthentication
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope
from ratelimits.costs import NO_AMOUNTS
from ratelimits.limiter.answers import Asking, ask
from ratelimits.limiter.decide import Call, Settlement
from ratelimits.subjects import Subject

from . import answers, examples, inputs
from .authentication import RememberingKeyAuthentication

DECIDE = Need(Scope.DECIDE, "ratelimits.add_charge")

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description=(
        "1 to 200 printable ASCII characters. The same request again within a day gets the stored answer with the "
        "header `Idempotency-Replayed: true`, and is charged once; another request with the same key is refused with "
        "422. To ask again after a deferral, take a new key."
    ),
)


class LimiterView(CallerView):
    """In the OpenAPI document these addresses take the same keys as all others."""

    # One transaction decides for many projects. The caller alone determines what is asked and answered.
    unconfined = frozenset({"POST"})

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        started = super().initialize_request(request, *args, **kwargs)
        started.authenticators = (
            RememberingKeyAuthentication(),
            TokenAuthentication(),
            OperatorSessionAuthentication(),
        )
        return started


class DecideCalls(LimiterView):
    needs: ClassVar = {"POST": DECIDE}

    @operation(
        "Ask whether calls may go now",
        tag="limits",
        operation_id="ratelimits_decide",
        body=inputs.Decide,
        body_example=examples.DECIDE,
        answer=answers.Decisions,
        example=examples.DECISIONS,
        parameters=[IDEMPOTENCY_KEY],
        description=(
            "`proceed`: every limit had room and was charged. `defer`: room will come. `retry`: the provider pushed "
            "back lately. `reject`: no wait helps. A call that a limit refuses holds up those behind it that need the "
            "same limit. The address is also taken without its last slash."
        ),
    )
    def post(self, request: Request, body: inputs.Decide) -> Response:
        self._refuse_others(body)
        asking = Asking(
            self.caller.project_id,
            self._calls(body),
            key=self.idempotency_key(),
            # Both spellings of the address share one path here, as their requests mean the same.
            digest=digest_of(request, self.raw, path="/ratelimits/decide/"),
        )
        answered = ask(asking)
        headers = {"Idempotency-Replayed": "true"} if answered.replayed else None
        return Response(answered.answer, headers=headers)

    def _refuse_others(self, body: inputs.Decide) -> None:
        own = self.caller.project_id
        others = [place for place, call in enumerate(body.calls) if call.project not in (None, own)]
        if others:
            fault = f"Must be your own project, {own!r}; leave it out."
            raise InvalidInput(fields={f"calls.{place}.project": [fault] for place in others})

    def _calls(self, body: inputs.Decide) -> tuple[Call, ...]:
        project, request_id = self.caller.project_id, uuid4().hex
        return tuple(
            Call(
                Subject(call.service, call.call_type, project, call.user, call.model, project),
                call.cost,
                call.known_cost,
                holder=f"{_holders_of(project)}{request_id}.{place}",
                kind="api",
                hold_seconds=body.hold_seconds,
                amounts=call.amounts.by_unit() if call.amounts else NO_AMOUNTS,
            )
            for place, call in enumerate(body.calls)
        )


class SettleCall(LimiterView):
    needs: ClassVar = {"POST": DECIDE}

    @operation(
        "Tell that a call has ended, and what it cost",
        tag="limits",
        operation_id="ratelimits_settle",
        body=inputs.Settle,
        body_example=examples.SETTLE,
        answer=answers.Settled,
        example=examples.SETTLED,
        description=(
            "Gives places in flight back, and corrects the tokens that were reserved. Safe to repeat: what was settled "
            "before is left alone. Needed for every decision with a `holder`, also when the call failed."
        ),
    )
    def post(self, request: Request, body: inputs.Settle) -> Response:
        if not body.holder.startswith(_holders_of(self.caller.project_id)):
            raise NotFound
        settlement = Settlement(body.holder, body.actual, body.amounts.by_unit() if body.amounts else NO_AMOUNTS)
        answered = ask(Asking(self.caller.project_id, settlements=(settlement,)))
        return Response({"holder": body.holder, "settled": body.holder in answered.settled})


def _holders_of(project_id: str) -> str:
    return f"api:{project_id}:"
