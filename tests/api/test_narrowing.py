"""What narrows a list or a selection: nothing that is empty or misread may stand for everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from drf_spectacular.generators import SchemaGenerator

from jobs.models import BulkOperation
from ratelimits.tuning.limits import create_limit
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_batch, make_dead_letter, make_job, make_schedule, make_webhook
from tests.support.api import told

USER = uuid4()


def _parameters() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every query parameter of everything that is read, with the address it narrows."""
    document = SchemaGenerator().get_schema(request=None, public=True)
    for path, methods in document["paths"].items():
        if not path.endswith("/schema/"):
            for described in methods.get("get", {}).get("parameters", ()):
                if described["in"] == "query":
                    yield path.removeprefix("/api/v1"), described


PARAMETERS = list(_parameters())
FILTERS = [(address, described["name"]) for address, described in PARAMETERS]
MOMENTS = [(address, one["name"]) for address, one in PARAMETERS if one["schema"].get("format") == "date-time"]
TRUTHS = [(address, one["name"]) for address, one in PARAMETERS if one["schema"].get("type") == "boolean"]
CHOICES = [(address, one["name"]) for address, one in PARAMETERS if one["schema"].get("type") == "array"]


class Lists:
    """Every list there is, with a row in the place of its address's parameter."""

    def __init__(self) -> None:
        self.api = Api(key_for("acme"))
        batch = make_batch()
        limit = create_limit({"name": "l", "service": "sheets", "call_type": "write", "capacity": 3}, actor="user:1")
        self.rows = {
            "/batches/": batch.pk,
            "/jobs/": make_job(batch=batch).pk,
            "/limits/": limit.limit_id,
            "/schedules/": make_schedule().pk,
            "/webhooks/": make_webhook(batch.project).pk,
        }

    def asked(self, address: str, name: str, value: str) -> Any:
        for prefix, row in self.rows.items():
            if address.startswith(prefix):
                address = address.replace("{id}", str(row))
        user = f"user_id={USER}&" if address == "/usage/events/" and name != "user_id" else ""
        return self.api.get(f"{address}?{user}{name}={value}")

    def refused(self, address: str, name: str, value: str) -> str:
        """What is said against the parameter, which alone is wrong."""
        error = error_of(self.asked(address, name, value), 400)
        assert (error["code"], list(error["fields"])) == ("invalid_query", [name]), address
        return " ".join(error["fields"][name])


@pytest.fixture
def lists(db: None) -> Lists:
    return Lists()


def test_there_are_parameters_of_each_kind():
    assert min(len(FILTERS) // 10, len(MOMENTS), len(TRUTHS), len(CHOICES)) > 4


def test_an_empty_filter_is_refused_and_not_answered_with_everything(lists: Lists):
    for value in ("", "%20%09"):
        for address, name in FILTERS:
            assert lists.refused(address, name, value)


def test_a_moment_that_cannot_be_compared_is_refused_with_the_rule_by_every_list(lists: Lists):
    moments = ["2026-01-01T00:00:00%2B23:59", "2026-01-01T00:00:00-16:00", "2026-01-01T00:00:00"]
    for moment in [*moments, "1767225600", "0000-01-01T00:00:00Z", "2026-02-30T00:00:00Z"]:
        for address, name in MOMENTS:
            assert "15:59" in lists.refused(address, name, moment), moment


def test_the_furthest_offsets_and_the_ends_of_the_calendar_are_compared(lists: Lists):
    for moment in ("2026-01-01T00:00:00%2B15:59", "0001-01-01T00:00:00%2B15:59", "9999-12-31T23:59:59-15:59"):
        for address, name in MOMENTS:
            assert lists.asked(address, name, moment).status_code == 200, (address, name)


def test_what_is_neither_true_nor_false_is_refused(lists: Lists):
    for address, name in TRUTHS:
        for value in ("maybe", "1"):
            assert lists.refused(address, name, value) == "true or false"


def test_an_empty_choice_among_others_is_refused(lists: Lists):
    for address, name in CHOICES:
        assert lists.refused(address, name, ",") == "empty between commas"


EMPTY = [
    *((name, value) for name in ("kind", "service", "error_code", "fingerprint") for value in ("", None)),
    *((name, value) for name in ("batch_id", "created_from", "created_until") for value in ("", None)),
    ("created_from", "2026-01-01T00:00:00+23:59"),
    ("created_until", "2026-01-01T00:00:00"),
    ("created_until", 1_767_225_600),
]


def test_an_empty_condition_of_a_selection_starts_nothing(api: Api):
    make_dead_letter()
    faults = {}
    for action, more in (("requeue", {}), ("discard", {"reason": "because"})):
        for name, value in EMPTY:
            answer = told(api.post(f"/dead-letters/{action}/", {"filter": {name: value}, **more}))
            if answer[::2] != (422, [f"filter.{name}"]):
                faults[action, name, value] = answer
    assert faults == {}
    assert not BulkOperation.objects.exists()


def test_bodies_keep_the_same_rule(api: Api):
    for address in ("POST /jobs/ expires_at", "POST /jobs/ scheduled_at", "PATCH /limits/7/ seen_at"):
        for moment in ("2026-01-01T00:00:00+23:59", "2026-01-01T00:00:00-16:00"):
            method, path, field = address.split()
            body = {"kind": "http.request"} if method == "POST" else {}
            error = error_of(api.send(method, path, json.dumps({**body, field: moment})), 422)
            assert "15:59" in error["fields"][field][0]


def test_no_address_takes_a_parameter_that_it_does_not_know(lists: Lists):
    document = SchemaGenerator().get_schema(request=None, public=True)
    asked = 0
    for path, methods in document["paths"].items():
        address = path.removeprefix("/api/v1")
        for prefix, row in lists.rows.items():
            if address.startswith(prefix):
                address = address.replace("{id}", str(row))
        if path.startswith("/api/v1") and not path.endswith("/schema/") and "{" not in address:
            for method in set(methods) & {"get", "post", "patch", "delete"}:
                error = error_of(lists.api.send(method.upper(), f"{address}?nonsense=1", "{}"), 400)
                assert error["code"] == "invalid_query", (method, path)
                asked += "nonsense" in error["fields"]
    assert asked > 40
    assert not BulkOperation.objects.exists()
