"""Each method of each address of the API, read from the resolver, and a request to it that is well-formed."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.test import Client

from tests.api.described import document
from tests.security.addresses import PARAMETER, Address, every_address, row_of
from tests.security.world import PROJECT, World

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ITSELF = {"api/v1/schema/", "api/v1/docs/"}  # what the API says of itself, to anybody
USER = "018f6a52-0000-7000-8000-000000000001"  # of the document's examples
QUERIES = {
    ("LimitDetail", "DELETE"): "reason=because",
    ("AllowanceDetail", "DELETE"): "reason=because",
    ("BudgetDetail", "DELETE"): "reason=because",
    ("AtOnceCap", "DELETE"): "reason=because",
    ("LimitOverrides", "DELETE"): f"key=project:{PROJECT}",
    ("UserStanding", "GET"): f"user_id={USER}",
    ("UserEvents", "GET"): f"user_id={USER}",
}
VIEWS = [
    address
    for address in every_address()
    if address.route.startswith(("api/", "functions/")) and hasattr(address.view, "cls") and address.route not in ITSELF
]


@dataclass(frozen=True)
class Place:
    """A method of an address; as a text without what all have in common."""

    address: Address
    method: str

    def __str__(self) -> str:
        return f"{self.method} {self.address.route.removeprefix('api/v1/')}"

    @property
    def view(self) -> Any:
        return self.address.view.cls

    @property
    def need(self) -> Any:
        return self.view.needs[self.method]

    def ask(self, client: Client, world: World, **how: Any) -> Any:
        """With the document's example for a body, and the world's own rows in the place of what it names."""
        query = QUERIES.get((self.view.__name__, self.method), "")
        body = json.dumps(self._body(world)) if self.method != "GET" else ""
        path = f"{self.address.path(world)}?{query}".removesuffix("?")
        return client.generic(self.method, path, body, content_type="application/json", **how)

    @property
    def takes_a_body(self) -> bool:
        return "requestBody" in self._described

    @cached_property
    def _described(self) -> dict[str, Any]:
        """What the document says of it, or of the address that it is an alias of."""
        paths = document()["paths"]
        routes = ["/" + PARAMETER.sub("{id}", one.route) for one in VIEWS if one.view.cls is self.view]
        found: dict[str, Any] = next(paths[route] for route in routes if route in paths)
        return dict(found[self.method.lower()])

    def _body(self, world: World) -> Any:
        if not self.takes_a_body:
            return {}
        [example] = self._described["requestBody"]["content"]["application/json"]["examples"].values()
        body = deepcopy(example["value"])
        rows = row_of(self.address.route) if "ids" in body else ""
        own = {
            "holder": f"api:{PROJECT}:1.0",
            "key": f"project:{PROJECT}",
            "ids": [world.ids.get(rows)],
            "reservation_id": world.ids["ratelimits_usagereservation"],
        }
        for one in body if isinstance(body, list) else [body]:
            one.update({name: value for name, value in own.items() if name in one})
        return body


PLACES = [
    Place(address, method) for address in VIEWS for method in METHODS if hasattr(address.view.cls, method.lower())
]
