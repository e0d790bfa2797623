"""Every address there is, read from the resolver, so that a new one is tested without being named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.contrib.admin.utils import quote as admin_quote
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.security.world import World

PARAMETER = re.compile(r"<(?:(?P<converter>\w+):)?(?P<name>\w+)>")
ANSWERED_BEFORE = ("healthz", "readyz", "metrics")  # by a middleware: dashboards/metrics/middleware.py
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
FAR_AWAY = "203.0.113.9"
FORM = {
    "confirmed": "yes",
    "reason": "because",
    "note": "because",
    "delay": "5",
    "priority": "urgent",
    "spread_seconds": "0",
    "scope": "global",
    "payload": '{"method": "GET", "url": "http://127.0.0.1:9/"}',
    "name": "mine",
    "username": "mallory",
    "post": "yes",
    "_save": "Save",
}
# Which row of the world a parameter names, by the beginning of its address.
ROWS = {
    "api/v1/jobs/": "jobs_job",
    "api/v1/batches/": "jobs_batch",
    "api/v1/dead-letters/": "jobs_deadletter",
    "api/v1/provider-batches/": "jobs_providerbatch",
    "api/v1/operations/": "jobs_bulkoperation",
    "api/v1/schedules/": "jobs_schedule",
    "api/v1/maintenance/": "jobs_maintenancewindow",
    "api/v1/webhooks/": "jobs_webhook",
    "api/v1/model-routes/": "door_modelroute",
    "api/v1/allowances/": "ratelimits_allowance",
    "api/v1/budgets/": "ratelimits_budget",
    "api/v1/limits/": "ratelimits_limit",
    "api/v1/counters/": "ratelimits_counter",
    "api/v1/alerts/": "ratelimits_quotaalert",
    "api/v1/at-once/": "at_once",
    "openai/v1/files/": "door_file",
    "openai/v1/batches/": "door_openai_batch",
    "openai/v1/responses/": "door_call",
    "openai/v1/answers/": "door_call",
    "anthropic/v1/messages/batches/": "door_anthropic_batch",
    "anthropic/v1/answers/": "door_call",
    "admin/jobs/batch/<uuid:pk>": "jobs_batch",
    "admin/jobs/job/<uuid:pk>": "jobs_job",
    "live/batches/": "jobs_batch",
    "live/pauses/": "jobs_pauseswitch",
    "live/alerts/": "ratelimits_quotaalert",
    "live/me/jobs/": "jobs_job",
    "me/jobs/": "jobs_job",
}
# The doors write an id so: the prefix, and 32 digits.
PREFIXES = {
    "openai/v1/files/": "file-",
    "openai/v1/batches/": "batch_",
    "openai/v1/responses/": "resp_",
    "anthropic/v1/messages/batches/": "msgbatch_",
}
# Parameters that name no row, by their names; and screens that have none in the world.
VALUES = {
    "app_label": "jobs",
    "content_type_id": "1",
    "form": "csv",
    "kind": "oldest_ready",
    "name": "m",
    "token": "x",
    "uidb64": "x",
    "url": "x",
    "verb": "pause",
}
WITHOUT_ROWS = {"admin/r", "django_q_ormq", "django_q_success", "django_q_failure"}


def row_of(route: str) -> str:
    """The name of the row that an address is about, or nothing."""
    return next((row for beginning, row in ROWS.items() if route.startswith(beginning)), "")


@dataclass(frozen=True)
class Address:
    """`route` is the whole pattern, `view` what answers."""

    route: str
    name: str
    view: Any

    def path(self, world: World) -> str:
        """With the world's own rows in the place of the parameters."""

        def fill(found: re.Match[str]) -> str:
            return quote(_value(self.route, found["converter"] or "str", found["name"], world), safe="")

        return "/" + PARAMETER.sub(fill, self.route)


def every_address() -> list[Address]:
    return [*_walk(get_resolver().url_patterns, ""), *(Address(route, "", None) for route in ANSWERED_BEFORE)]


def _walk(patterns: list[Any], before: str) -> Iterator[Address]:
    for pattern in patterns:
        route = before + str(pattern.pattern).removeprefix("^").removesuffix("$")
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield Address(route.replace("\\Z", ""), pattern.name or "", pattern.callback)


def _value(route: str, converter: str, name: str, world: World) -> str:
    """
    Raises:
        KeyError: The world lacks such a row: without it nobody could see that a stranger is shown it.
    """
    parts = route.split("/")
    screen = "_".join(parts[1:3])
    if name == "filter_id":
        return world.ids["jobs_savedfilter"]
    if name == "object_id" or route == "admin/auth/user/<id>/password/":
        return "x" if {screen, "/".join(parts[:2])} & WITHOUT_ROWS else admin_quote(world.ids[screen])
    if prefix := _prefix(route):
        return prefix + world.ids[row_of(route)].replace("-", "")
    return VALUES.get(name) or world.ids[row_of(route)]


def _prefix(route: str) -> str:
    return next((prefix for beginning, prefix in PREFIXES.items() if route.startswith(beginning)), "")


def send(client: Client, method: str, address: Address, world: World) -> tuple[int, str]:
    path = address.path(world)
    ids = [world.ids["jobs_job"], world.ids["jobs_deadletter"], world.ids["jobs_batch"]]
    where: dict[str, Any] = {"REMOTE_ADDR": FAR_AWAY}
    if method == "POST" and not path.startswith(("/api/", "/live/")):
        response = client.post(path, {**FORM, "_selected_action": ids}, **where)
    elif method in UNSAFE:
        body = json.dumps({"ids": ids, "reason": "because", "priority": "low", "delay_seconds": 5})
        response = client.generic(method, path, body, content_type="application/json", **where)
    else:
        response = client.generic(method, path, **where)
    answer: bytes = b"".join(response) if response.streaming else response.content
    return response.status_code, answer.decode(errors="replace") + str(response.headers)
