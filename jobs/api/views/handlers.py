"""The kinds of jobs this installation carries out."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples
from jobs.handlers.registry import Handler, all_handlers
from queueops.rest.schema import operation
from queueops.rest.views import CallerView

from .base import READ

logger = logging.getLogger(__name__)


class HandlerList(CallerView):
    needs: ClassVar = {"GET": READ}
    for_users = True

    @operation(
        "List the kinds of jobs that may be submitted, and the schemas of their payloads",
        operation_id="handlers_list",
        answer=answers.Handlers,
        example=examples.HANDLERS,
    )
    def get(self, request: Request) -> Response:
        return Response(
            {"results": [_shown(handler.kind, handler) for handler in all_handlers() if not handler.internal]}
        )


@cache
def _shown(kind: str, handler: Handler) -> dict[str, Any]:
    return {
        "kind": kind,
        "service": None if callable(handler.service) else handler.service,
        "call_type": handler.call_type.value,
        "timeout_seconds": handler.timeout.total_seconds(),
        "retry_policy": handler.retry,
        "idempotent": None if callable(handler.idempotent) else handler.idempotent,
        "sends_effect_key": handler.sends_effect_key,
        "description": handler.description,
        "payload_schema": _schema(handler),
    }


def _schema(handler: Handler) -> dict[str, Any]:
    try:
        return handler.schema.json_schema()
    except Exception as error:  # noqa: BLE001 - one kind's type must not hide all kinds
        logger.warning("kind %s: its payload's type has no JSON Schema: %s", handler.kind, error)
        return {}
