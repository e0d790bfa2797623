"""The headers of answers correct our counters, with real executors and the sandbox's Anthropic."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.services.claim import provider_quotas
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from jobs.testing import drain
from queueops.tenancy import accounts
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limiter.decide import Call, Statement, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit
from ratelimits.rate_headers import StatedQuota
from ratelimits.subjects import Subject
from ratelimits.tuning.limits import create_limit
from tests.support.cases import every_case

PROJECT = "acme"
CAPACITY = 40
WINDOW_SECONDS = 5


@pytest.fixture(autouse=True)
def nothing_noted():
    for one in (accounts, catalogue, provider_quotas):
        one.forget()


def set_up(sandbox, *, capacity=CAPACITY, hidden=0.0, **figures):
    quota = {"requests_per_minute": CAPACITY, "input_tokens_per_minute": None, "output_tokens_per_minute": None}
    window = {"window_mode": "sliding", "window_seconds": WINDOW_SECONDS, "hidden_share": hidden}
    sandbox.turn(anthropic={**quota, **window})
    create_limit(
        {
            "name": "claude-requests",
            "service": "anthropic",
            "scope": "project",
            "algorithm": "sliding_window",
            "capacity": capacity,
            "window_seconds": WINDOW_SECONDS,
            "slack_seconds": 0.5,
            **figures,
        },
        actor="user:1",
    )
    project, _ = Project.objects.get_or_create(pk=PROJECT, defaults={"name": PROJECT})
    credential = Credential.objects.create(
        name="claude",
        service="anthropic",
        quota_project=PROJECT,
        secret=seal({"api_key": f"project:{PROJECT}/user:robot"}),
        base_url=sandbox.url,
    )
    credential.projects.add(project)


def ask(times):
    payload = {"provider": "anthropic", "credential": "claude", "model": "small-1", "prompt": "Why?"}
    lines = [{"kind": "llm.generate", "payload": payload} for _ in range(times)]
    submit_batch(lines, project_id=PROJECT, actor="key:test")
    drain(seconds=60)
    assert set(Job.objects.values_list("status", flat=True)) == {JobState.COMPLETED}


@pytest.mark.django_db
@pytest.mark.matrix
def test_a_consumer_that_asks_nobody_is_seen_before_a_call_is_refused(sandbox):
    set_up(sandbox, hidden=0.3)
    ask(2 * CAPACITY)
    assert len(sandbox.calls(status=429)) <= 3  # of windows so short that each answer comes late


@pytest.mark.django_db
@pytest.mark.parametrize("learns", [False, True])
def test_a_cap_that_an_answer_states_is_proposed_or_learned(sandbox, learns):
    set_up(sandbox, capacity=2 * CAPACITY, learns_caps=learns)
    ask(1)
    counter = Counter.objects.get()
    if learns:
        override = Limit.objects.get().overrides.get()
        assert (override.key, override.capacity, counter.proposed_capacity) == ("project:acme", CAPACITY, None)
    else:
        assert (counter.proposed_capacity, Limit.objects.get().overrides.count()) == (CAPACITY, 0)


@pytest.mark.django_db
@every_case("keys", [1, 2], undone=True)
def test_a_cap_stated_for_one_key_is_not_that_of_a_limit_over_several(keys):
    Limit.objects.all().delete()
    owner = Project.objects.create(pk=PROJECT, name=PROJECT)
    for number in range(keys):
        row = Credential.objects.create(name=f"key-{number}", service="openai", quota_project=f"p{number}", secret=b"")
        row.projects.add(owner)
    figures = {"name": "all", "service": "openai", "scope": "global", "capacity": 40, "learns_caps": True}
    limit = create_limit(figures, actor="user:1").limit_id
    catalogue.forget()
    accounts.forget()
    subject = Subject("openai", "write", "p0")
    told = Statement(subject, (StatedQuota("", "requests", 1_000, 60, 999),))
    decide([Call(subject)])
    provider_quotas.note_caps([told], actor="executor:1")
    assert Limit.objects.get(pk=limit).capacity == (1_000 if keys == 1 else 40)
    assert not Limit.objects.get(pk=limit).overrides.exists()
    assert not Counter.objects.exclude(proposed_capacity=None).exists()
