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
API_ROWS = {
    "jobs": "jobs_job",
    "batches": "jobs_batch",
    "dead-letters": "jobs_deadletter",
    "provider-batches": "jobs_providerbatch",
    "operations": "jobs_bulkoperation",
    "schedules": "jobs_schedule",
    "maintenance": "jobs_maintenancewindow",
    "webhooks": "jobs_webhook",
    "model-routes": "door_modelroute",
    "allowances": "ratelimits_allowance",
    "budgets": "ratelimits_budget",
    "limits": "ratelimits_limit",
    "counters": "ratelimits_counter",
    "alerts": "ratelimits_quotaalert",
}


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
    parts = route.split("/")
    if parts[0] == "admin":
        screen = "_".join(parts[1:3])
        if screen in world.ids:
            return admin_quote(world.ids[screen])
    if parts[0] == "api" and parts[2] in API_ROWS:
        return world.ids[API_ROWS[parts[2]]]
    by_name = {"batch_id": "jobs_batch", "job_id": "jobs_job", "alert_id": "ratelimits_quotaalert"}
    if name in by_name:
        return world.ids[by_name[name]]
    known = {"verb": "pause", "kind": "oldest_ready", "url": "x", "app_label": "jobs"}
    return known.get(name) or {"int": "1", "uuid": world.ids["jobs_job"]}.get(converter, "x")


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
