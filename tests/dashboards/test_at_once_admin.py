"""`At most N at once` on a project's page: set, seen, changed, refused, removed."""

from __future__ import annotations

import pytest
from django.urls import reverse

from queueops.audit.models import AuditEntry
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from ratelimits.tuning.concurrency_caps import set_at_once
from tests.factories import make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _project():
    make_project()
    catalogue.forget()
    yield
    catalogue.forget()


PAGE = ("admin:tenancy_project_change", ["acme"])
FORM = ("admin:tenancy_project_at_once", ["acme"])


def address(of: tuple[str, list[str]]) -> str:
    return reverse(of[0], args=of[1])


def test_a_cap_is_set_from_the_projects_page_and_shown_with_what_is_in_flight():
    client = signed_in("limits manager")
    assert "As many of this project" in client.get(address(PAGE)).content.decode()
    given = {"confirmed": "1", "at_most": "7", "kind": "http.request", "service": "", "reason": "their server is small"}
    assert client.post(address(FORM), given).status_code == 302
    limit = Limit.objects.get()
    assert (limit.capacity, limit.project, limit.kind, limit.unit) == (7, "acme", "http.request", "in_flight")
    assert AuditEntry.objects.get(action="create_limit").reason == "their server is small"
    decide([Call(Subject("svc", "write", "acme", owner="acme", kind="http.request"))] * 3)
    shown = client.get(address(PAGE)).content.decode()
    assert "jobs of http.request" in shown
    assert '<td class="qo-right qo-number">3</td><td class="qo-right qo-number">7</td>' in shown
    client.post(address(FORM), {**given, "at_most": "9"})
    assert Limit.objects.get().capacity == 9


def test_it_is_removed_by_the_limits_own_page_which_asks_for_a_reason():
    limit_id = set_at_once("acme", 3, actor="user:1").limit_id
    client = signed_in("limits manager")
    remove = reverse("admin:ratelimits_limit_remove", args=[limit_id])
    assert remove in client.get(address(PAGE)).content.decode()
    assert client.post(remove, {"confirmed": "1", "reason": ""}).status_code == 200
    assert Limit.objects.exists()
    assert client.post(remove, {"confirmed": "1", "reason": "over"}).status_code == 302
    assert not Limit.objects.exists()


@every_case("at_most", ["", "0", "-2", "many", "2.5", "10000000"])
def test_no_number_is_told_at_the_field(at_most):
    answer = signed_in("limits manager").post(address(FORM), {"confirmed": "1", "at_most": at_most})
    assert answer.status_code == 200
    assert "at_most" in answer.context["form"].errors
    assert not Limit.objects.exists()


@every_case("role", ["viewer", "operator"], undone=True)
def test_others_see_caps_and_are_offered_no_change(role):
    set_at_once("acme", 3, actor="user:1")
    client = signed_in(role)
    shown = client.get(address(PAGE)).content.decode()
    assert "all jobs" in shown
    assert "remove…" not in shown
    assert address(FORM) not in shown
    assert client.post(address(FORM), {"confirmed": "1", "at_most": "9"}).status_code == 403
    assert Limit.objects.get().capacity == 3
