"""Dead letters: list, look at one, requeue and discard."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.errors import WrongState
from jobs.api.filters import DeadLetterFilterSet
from jobs.api.serializers.dead_letters import DeadLetterSerializer
from jobs.models import DeadLetter
from jobs.services.operate.bulk import start_bulk_discard, start_bulk_requeue
from jobs.services.operate.dead_letters import discard_dead_letters, requeue_dead_letters
from jobs.services.submit.results import distinct_ids
from queueops.core.values.identifiers import time_of
from queueops.rest.pagination import NewestFirst
from queueops.rest.schema import operation
from queueops.tenancy.secrets.written_json import WrittenBytes

from .base import DISCARD, READ_DEAD_LETTERS, REQUEUE, ApiListView, ApiView
from .job_actions import RowsAction, requeue_one
from .operations import start

# No index has a project's dead letters by these.
WITHOUT_INDEX = frozenset({"kind", "service", "error_code", "fingerprint", "batch", "open", "resolution"})
BOUNDS = frozenset({"created_after", "created_before"})
CHOICE = "By `ids`, answered at once, or by `filter`, as an operation in the background (202)."


class LetterPages(NewestFirst):
    """By the time of failure: for the order of ids, the dead letters of all projects would be read."""

    def ordered(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.order_by("-created_at", "-pk")

    def places(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.only("pk", "created_at")

    def place_of(self, row: Any) -> Any:
        return row.created_at, row.pk

    def behind(self, rows: QuerySet[Any], place: Any) -> QuerySet[Any]:
        moment, pk = place
        return rows.filter(created_at__lte=moment).exclude(created_at=moment, pk__gte=pk)

    def down_to(self, rows: QuerySet[Any], place: Any) -> QuerySet[Any]:
        moment, pk = place
        return rows.filter(created_at__gte=moment).exclude(created_at=moment, pk__lt=pk)

    def encode(self, last: Any) -> str:
        return super().encode(last[1])

    def read(self, text: str, queryset: QuerySet[Any]) -> Any:
        pk = super().read(text, queryset)
        moment = DeadLetter.objects.filter(pk=pk).values_list("created_at", flat=True).first()
        return moment or time_of(pk), pk  # retention may have deleted it


class DeadLetterList(ApiListView[DeadLetter]):
    pagination_class = LetterPages
    needs: ClassVar = {"GET": READ_DEAD_LETTERS}
    serializer_class = DeadLetterSerializer
    filterset_class = DeadLetterFilterSet
    weight = WrittenBytes("payload")

    @property
    def looks_through(self) -> QuerySet[DeadLetter] | None:
        given = self.request.query_params
        if "job" in given or not WITHOUT_INDEX & given.keys():
            return None
        bounds = {name: given[name] for name in BOUNDS & given.keys()}
        every: QuerySet[DeadLetter] = DeadLetterFilterSet(
            bounds, queryset=DeadLetter.objects.of_project(self.caller.project_id)
        ).qs
        return every

    @operation(
        "List dead letters, newest first",
        operation_id="dead_letters_list",
        answer=DeadLetterSerializer(many=True),
        example=examples.DEAD_LETTER,
        description="`open=true` leaves out those requeued or discarded. Payloads of more than "
        "QUEUEOPS_MAX_PAGE_MB together end a page early.",
    )
    def get(self, request: Request) -> Response:
        return self.listed(DeadLetter.objects.of_project(self.caller.project_id))


class DeadLetterDetail(ApiView):
    needs: ClassVar = {"GET": READ_DEAD_LETTERS}

    @operation(
        "Look at a dead letter",
        operation_id="dead_letters_get",
        answer=DeadLetterSerializer,
        example=examples.DEAD_LETTER,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        letter = self.own(DeadLetter.objects.all(), pk)
        return Response(DeadLetterSerializer(letter, context=self.serializer_context()).data)


class RequeueDeadLetter(ApiView):
    needs: ClassVar = {"POST": REQUEUE}

    @operation(
        "Requeue a dead letter",
        operation_id="dead_letters_requeue",
        body=inputs.Requeue,
        body_example={"priority": "urgent", "note": "the table exists now"},
        answer=answers.RequeuedOne,
        status=201,
        example=examples.REQUEUED_ONE,
        errors=[409],
        answers_once=True,
    )
    def post(self, request: Request, pk: UUID, body: inputs.Requeue) -> Response:
        letter = self.own(DeadLetter.objects.only("id", "job_id"), pk)
        return self.answer(lambda: requeue_one(self, letter, body))


class DiscardDeadLetter(ApiView):
    needs: ClassVar = {"POST": DISCARD}

    @operation(
        "Discard a dead letter",
        operation_id="dead_letters_discard",
        body=inputs.Discard,
        body_example={"reason": "the customer is gone"},
        answer=DeadLetterSerializer,
        example={**examples.DEAD_LETTER, "resolution": "discarded", "note": "the customer is gone"},
        errors=[409],
    )
    def post(self, request: Request, pk: UUID, body: inputs.Discard) -> Response:
        letter = self.own(DeadLetter.objects.only("id"), pk)
        result = discard_dead_letters([letter.pk], actor=self.caller.actor, reason=body.reason)
        letter = DeadLetter.objects.get(pk=letter.pk)
        if not result.moved:
            raise WrongState("It was requeued or discarded before.", state=letter.resolution)
        return Response(DeadLetterSerializer(letter).data)


class RequeueDeadLetters(RowsAction):
    needs: ClassVar = {"POST": REQUEUE}
    rows = DeadLetter.objects.all()

    @operation(
        "Requeue dead letters",
        operation_id="dead_letters_requeue_many",
        body=inputs.RequeueMany,
        body_example={"filter": {"fingerprint": "9f2c1be04d7a5c11"}, "spread_seconds": 600},
        answer=answers.Requeued,
        other_answers={202: answers.Started},
        example=examples.REQUEUED,
        answers_once=True,
        description=f"{CHOICE} `spread_seconds` spreads the starts so that the replay breaches no quota.",
    )
    def post(self, request: Request, body: inputs.RequeueMany) -> Response:
        options = body.figures("payload", "priority", "spread_seconds", "note")
        canary, actor = options.pop("canary"), self.caller.actor
        if body.filter is not None:
            wanted = _within(self, body.filter)
            return start(self, lambda: start_bulk_requeue(wanted, actor=actor, canary=canary, **options))
        wanted_ids = distinct_ids(body.ids or [])

        def effect() -> tuple[int, dict[str, Any]]:
            result = requeue_dead_letters(self.own_ids(wanted_ids), actor=actor, **options)
            return 200, {
                "moved": {str(letter): str(job) for letter, job in result.moved.items()},
                "unmoved": [str(wanted) for wanted in wanted_ids if wanted not in result.moved],
            }

        return self.answer(effect)


class DiscardDeadLetters(RowsAction):
    needs: ClassVar = {"POST": DISCARD}
    rows = DeadLetter.objects.all()

    @operation(
        "Discard dead letters",
        operation_id="dead_letters_discard_many",
        body=inputs.DiscardMany,
        body_example={"ids": [examples.DEAD_LETTER_ID], "reason": "the customer is gone"},
        answer=answers.Moved,
        other_answers={202: answers.Started},
        example={"moved": [examples.DEAD_LETTER_ID], "unmoved": []},
        answers_once=True,
        description=CHOICE,
    )
    def post(self, request: Request, body: inputs.DiscardMany) -> Response:
        if body.filter is not None:
            wanted = _within(self, body.filter)
            return start(self, lambda: start_bulk_discard(wanted, actor=self.caller.actor, reason=body.reason))
        actor = self.caller.actor
        return self.act_on_many(body.ids or [], lambda ids: discard_dead_letters(ids, actor=actor, reason=body.reason))


def _within(view: ApiView, given: inputs.LetterFilter) -> dict[str, Any]:
    return {**given.model_dump(exclude_none=True), "project_id": view.caller.project_id}
