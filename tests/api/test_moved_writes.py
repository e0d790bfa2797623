"""Who was let in before a project's move writes nothing behind its copy, whatever the address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from jobs.models import DeadLetter
from queueops.rest import views
from queueops.tenancy.models import ProducerKey, Project, ProjectMove, Scope
from ratelimits.models import Allowance, LimitOverride
from tests.api.described import document, path_of
from tests.security.addresses import UNSAFE, Address, every_address
from tests.security.world import PROJECT, World, everything

# Each statement commits by itself, as in production.
pytestmark = pytest.mark.django_db(transaction=True)

API = [address for address in every_address() if address.route.startswith("api/")]
# A key may not change what is the installation's; and a trial or a preview changes nothing.
OTHERS = {
    ("LimitList", "POST"): 403,
    ("LimitDetail", "PATCH"): 403,
    ("LimitDetail", "DELETE"): 403,
    ("AtOnceCaps", "PUT"): 403,
    ("AtOnceCap", "DELETE"): 403,
    ("SimulateLimit", "POST"): 200,
    ("PreviewSchedule", "POST"): 200,
}
QUERIES = {
    "LimitDetail": "?reason=because",
    "AllowanceDetail": "?reason=because",
    "BudgetDetail": "?reason=because",
    "AtOnceCap": "?reason=because",
    "LimitOverrides": f"?key=project:{PROJECT}",
}
REFUSED = {ProjectMove.MOVING: (503, "project_moving"), ProjectMove.MOVED: (410, "project_moved")}


@pytest.fixture
def world() -> World:
    made = World.make()
    Allowance.objects.update(set_by_operator=False)
    LimitOverride.objects.create(limit_id=int(made.ids["ratelimits_limit"]), key=f"project:{PROJECT}", capacity=5)
    return made


def writes(world: World) -> Iterator[tuple[str, str, str]]:
    """View, method and address of all that a project's key may ask to change something."""
    for address in API:
        view: Any = getattr(address.view, "cls", None)
        if view is not None and issubclass(view, views.CallerView):
            yield from (
                (view.__name__, method, _address(address, method, world)) for method in UNSAFE if method in view.needs
            )


def _address(address: Address, method: str, world: World) -> str:
    path = address.path(world)
    if path.endswith("/retry/"):  # of a job that has failed
        path = path.replace(world.ids["jobs_job"], str(DeadLetter.objects.get().job_id))
    return path + (QUERIES.get(address.view.cls.__name__, "") if method == "DELETE" else "")


def body_of(method: str, address: str) -> Any:
    """The example of the address's description, with what must be the project's own."""
    described = document()["paths"][path_of(address.partition("?")[0])][method.lower()]
    if "requestBody" not in described:
        return {}
    [example] = described["requestBody"]["content"]["application/json"]["examples"].values()
    body = example["value"]
    if isinstance(body, list):
        return body
    own = {"holder": f"api:{PROJECT}:1.0", "key": f"project:{PROJECT}"}
    return body | {name: value for name, value in own.items() if name in body}


@pytest.mark.parametrize("move", REFUSED, ids=str)
def test_a_request_that_was_let_in_before_a_move_is_refused_by_whatever_writes(world, monkeypatch, move):
    _, secret = ProducerKey.issue(Project.objects.get(pk=PROJECT), name="own", scopes=list(Scope.values))
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {secret}"})
    let_in = views.CallerView.initial

    def let_in_and_close(*arguments: Any, **options: Any) -> None:
        let_in(*arguments, **options)
        Project.objects.filter(pk=PROJECT).update(move=move)

    monkeypatch.setattr(views.CallerView, "initial", let_in_and_close)
    before, answers, expected = everything(), {}, {}
    for view, method, address in writes(world):
        Project.objects.filter(pk=PROJECT).update(move=ProjectMove.NONE)
        answer = client.generic(method, address, json.dumps(body_of(method, address)), content_type="application/json")
        answers[method, address] = answer.status_code, answer.json().get("error", {}).get("code")
        expected[method, address] = REFUSED[move]
        if (status := OTHERS.get((view, method))) == answer.status_code:
            expected[method, address] = status, answers[method, address][1]
    Project.objects.filter(pk=PROJECT).update(move=ProjectMove.NONE)
    assert {one: answer for one, answer in answers.items() if answer != expected[one]} == {}
    assert len(answers) > 40
    assert everything() == before
