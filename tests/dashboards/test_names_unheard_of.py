"""What nobody knows is told of where it is typed: a limit of `opennai` counts nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from jobs.features.flow.models import SINCE_EVER
from jobs.models import FlowSample, MaintenanceWindow, Objective, PauseSwitch
from queueops.core.clock import database_moment
from ratelimits.models import Limit
from ratelimits.tuning import limits
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

MEANT = "No job has ever called &#x27;opennai&#x27;. Is &#x27;openai&#x27; meant?"


@pytest.fixture(autouse=True)
def _openai_was_called() -> None:
    FlowSample.objects.create(span_seconds=SINCE_EVER, at=database_moment(), service="openai", submitted=1)


def test_a_limit_of_a_service_that_no_job_has_called_is_saved_once_that_was_read():
    client, address = signed_in("superuser"), reverse("admin:ratelimits_limit_add")
    form = client.get(address).context["adminform"].form
    given: dict[str, Any] = {
        name: form[name].value() for name in form.fields if form[name].value() not in (None, False)
    }
    formset = {"overrides-TOTAL_FORMS": 0, "overrides-INITIAL_FORMS": 0}
    given |= {**formset, "name": "o", "service": "opennai", "capacity": "5", "_save": "Save"}
    asked = client.post(address, given)
    assert MEANT in asked.content.decode()
    assert not Limit.objects.exists()
    assert "<option value='openai'>" in asked.content.decode()
    assert client.post(address, {**given, "service": "openai"}).status_code == 302
    assert client.post(address, {**given, "name": "p", "confirmed": "on"}).status_code == 302


def test_each_name_of_a_limit_is_told_of_when_it_is_new_and_only_then():
    told = "No job has ever called 'opennai'. Is 'openai' meant? Until then this limit counts nothing."
    figures = {"name": "o", "service": "opennai", "capacity": 5}
    made = limits.create_limit(figures, actor="user:1")
    assert made.warnings == (told,)
    assert limits.update_limit(made.limit_id, {"capacity": 6}, actor="user:1").warnings == ()
    assert "model 'gpt'" in limits.update_limit(made.limit_id, {"model": "gpt"}, actor="user:1").warnings[0]
    own = {"name": "k", "kind": "http.requst", "unit": "in_flight", "algorithm": "concurrency", "capacity": 5}
    assert "Is 'http.request' meant?" in limits.create_limit(own, actor="user:1").warnings[0]


def test_windows_pauses_and_objectives_offer_names_and_tell_of_those_that_nobody_knows():
    client, tomorrow = signed_in("superuser"), f"{database_moment():%Y}-12-31"
    window = {"scope": "service", "key": "opennai", "time_zone": "UTC", "begins_at_0": tomorrow, "begins_at_1": "10:00"}
    window |= {"ends_at_0": tomorrow, "ends_at_1": "23:59"}
    objective = {"name": "o", "percent": "95", "aim": "succeed", "window_days": "28", "service": "opennai"}
    pause = {"scope": "service", "key": "opennai", "reason": "tested"}
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "window": (reverse("admin:jobs_maintenancewindow_add"), window),
        "objective": (reverse("admin:jobs_objective_add"), objective),
        "pause": (reverse("admin:jobs_pauseswitch_pause_work"), pause),
    }
    for address, form in cases.values():
        assert "<option value='openai'>" in client.get(address).content.decode()
        assert MEANT in client.post(address, form, follow=True).content.decode()
        known = client.post(address, {**form, "name": "p", "key": "openai", "service": "openai"}, follow=True)
        assert "No job has ever" not in known.content.decode()
    assert (MaintenanceWindow.objects.count(), Objective.objects.count(), PauseSwitch.objects.count()) == (2, 2, 0)
