"""The keys under which limits count, of the longest names there may be."""

from __future__ import annotations

import pytest
from django.db.models import CharField, Model

from jobs.lanes import lane_name, read_lane
from jobs.models import Job
from queueops.tenancy.models import Credential, Project
from ratelimits.alerts.alerts import tell_exceeded
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.limits.overrides import set_override
from ratelimits.limits.save_limit import project_of
from ratelimits.models import Counter, Limit, LimitOverride, QuotaAlert
from ratelimits.subjects import MAX_NAME_LENGTH, Subject

LONGEST = Subject(
    "s" * 64, "write", "p" * MAX_NAME_LENGTH, "u" * MAX_NAME_LENGTH, "m" * MAX_NAME_LENGTH, "o" * 63, "k" * 100
)


def length_of(model: type[Model], name: str) -> int:
    found = model._meta.get_field(name)
    assert isinstance(found, CharField)
    return found.max_length or 0


def test_no_principal_or_model_is_longer_than_a_key_has_room_for():
    named: list[tuple[type[Model], str]] = [
        *((Credential, "quota_project"), (Credential, "quota_user")),
        *((Job, "model"), (Limit, "model"), (Project, "id")),
    ]
    assert max(length_of(model, name) for model, name in named) == MAX_NAME_LENGTH
    assert (len(LONGEST.owner), len(LONGEST.kind)) == (length_of(Project, "id"), length_of(Job, "kind"))


@pytest.mark.django_db
def test_calls_of_the_longest_names_are_counted_and_can_be_told_of():
    limit = Limit.objects.create(
        name="long", service=LONGEST.service, scope="project_user", per_model=True, capacity=10, pk=99_999_999
    )
    catalogue.forget()
    assert [decision.kind for decision in decide([Call(LONGEST)] * 9)] == ["proceed"] * 9
    [counter] = Counter.objects.all()
    assert (counter.key, counter.alert_level) == (
        f"project:{LONGEST.project}/user:{LONGEST.user}/model:{LONGEST.model}",
        80,
    )
    tell_exceeded(catalogue.rules()[0], counter.key, message="", figures={})
    assert set(QuotaAlert.objects.values_list("subject", flat=True)) == {counter.pk}
    set_override(limit.pk, counter.key, capacity=5, actor="user:1")
    assert LimitOverride.objects.get().key == counter.key
    catalogue.forget()


def test_a_provider_s_project_that_is_none_of_ours_is_left_out_of_the_trail():
    assert project_of("project:acme/user:u") == "acme"
    assert [project_of(key) for key in ("*", "user:u", f"project:{LONGEST.project}", "project:Acme Inc")] == [""] * 4


def test_the_longest_lane_fits_its_column():
    name = lane_name(LONGEST, project=LONGEST.owner, user="u" * 36, target="https://one.of.several:443")
    assert len(name) <= length_of(Job, "lane")
    assert read_lane(name).subject == LONGEST
