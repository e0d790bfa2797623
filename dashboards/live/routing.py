"""The addresses of the websockets, and the application that serves websockets and HTTP."""

from __future__ import annotations

from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import path, re_path

from .consumers import BatchConsumer, JobConsumer, MeConsumer, OpsConsumer, UnknownConsumer

websockets = URLRouter(
    [
        path("ws/v1/jobs/<uuid:pk>", JobConsumer.as_asgi()),
        path("ws/v1/batches/<uuid:pk>", BatchConsumer.as_asgi()),
        path("ws/v1/me", MeConsumer.as_asgi()),
        path("ws/v1/ops", OpsConsumer.as_asgi()),
        re_path("", UnknownConsumer.as_asgi()),
    ]
)


def by_protocol(http: Any) -> Any:
    """Return the web process's application, which serves websockets here and leaves all other requests to `http`."""
    return ProtocolTypeRouter({"http": http, "websocket": websockets})
