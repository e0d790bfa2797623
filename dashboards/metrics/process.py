"""Samples of this web process alone: its websockets, how far they lag, and the requests that wait for its threads."""

from __future__ import annotations

from django.utils import timezone

from dashboards.live.hub import the_hub
from jobs.models import JobEvent
from queueops.core.web.requests.request_queue import REASONS, RequestQueue
from queueops.core.web.requests.spool import SpooledBytes

from .samples import Sample, Value

_queues: list[RequestQueue] = []
_rooms: list[SpooledBytes] = []


def show_requests(queue: RequestQueue, room: SpooledBytes) -> None:
    """Export this process's queue of requests, and the room that bodies take."""
    _queues.append(queue)
    _rooms.append(room)


def read_process() -> list[Sample]:
    return [*_websockets(), *_requests()]


def _requests() -> list[Sample]:
    dropped = [Value("web_requests_dropped", (why,), sum(one.dropped[why] for one in _queues)) for why in REASONS]
    return [
        Value("web_requests_waiting", (), sum(one.waiting for one in _queues)),
        *dropped,
        Value("web_requests_dropped", ("room",), sum(one.refused for one in _rooms)),
        Value("web_spooled_bytes", (), sum(one.total for one in _rooms)),
    ]


def _websockets() -> list[Sample]:
    if not the_hub.cache_info().currsize:
        return [Value("websocket_clients", (), 0), Value("waiting_requests", (), 0)]  # nobody has connected yet
    hub = the_hub()
    samples: list[Sample] = [
        Value("websocket_clients", (), hub.clients),
        Value("waiting_requests", (), len(hub.waiters)),
    ]
    if hub.relay.cursor.id:
        samples.append(Value("relay_lag_seconds", (), _age_of_what_lies_above(hub.relay.cursor.id)))
    return samples


def _age_of_what_lies_above(cursor: int) -> float:
    """
    Return the age of the oldest event after the cursor. It was not handed over yet, or its id follows the ids of an
    open transaction.
    """
    oldest = JobEvent.objects.filter(pk__gt=cursor).order_by("pk").values_list("created_at", flat=True).first()
    return max(0.0, (timezone.now() - oldest).total_seconds()) if oldest else 0.0
