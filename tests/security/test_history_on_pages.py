"""What people changed about a row stands on its page, for those who may see the audit trail."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from jobs.services.operate.bulk import cancel_batch
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.operate.pauses import pause_batch, pause_scope
from queueops.audit import trail
from ratelimits.tuning.limits import create_limit, update_limit
from tests.factories import make_batch, make_job, make_project
from tests.security.world import World
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


def changes_on(screen: str, key: Any, role: str = "operator") -> str:
    answer = signed_in(role).get(reverse(f"admin:{screen}_change", args=[key]))
    assert answer.status_code == 200
    text = " ".join(answer.content.decode().split())
    _, found, after = text.partition('aria-label="What people changed"')
    return after.partition("</section>")[0] if found else ""


def test_a_limits_changes_say_from_what_to_what_by_whom_and_why():
    people = signed_in("administrator")
    person = f"user:{people.session['_auth_user_id']}"
    limit = create_limit({"name": "writes", "service": "sheets", "capacity": 60}, actor=person).limit_id
    update_limit(limit, {"capacity": 30}, actor=person, reason="they halved it")
    told = changes_on("ratelimits_limit", limit, "administrator")
    assert "capacity: 60" in told
    assert "→ 30" in told
    assert "they halved it" in told
    assert "administrator" in told
    assert "update limit" in told


def test_a_jobs_and_a_projects_changes_stand_on_their_pages():
    job = make_job()
    cancel_jobs([job.pk], actor="key:qo_abc", reason="not wanted")
    assert "not wanted" in changes_on("jobs_job", job.pk)
    pause_scope("project", "acme", actor="key:qo_abc", reason="a release")
    assert "a release" in changes_on("tenancy_project", "acme", "administrator")


def test_a_batchs_pauses_and_the_operations_over_it_stand_on_its_page():
    batch = make_batch()
    make_job(batch=batch)
    pause_batch(batch.pk, actor="key:qo_abc", reason="wrong column")
    cancel_batch(batch.pk, actor="key:qo_abc", reason="given up")
    told = changes_on("jobs_batch", batch.pk)
    assert "wrong column" in told
    assert "given up" in told
    assert changes_on("jobs_batch", make_batch().pk) == ""


def test_what_was_written_is_text_and_long_values_are_cut():
    make_project("acme")
    after = {"name": "<img src=x onerror=alert(1)>", "weight": "w" * 500}
    trail.record(actor="key:x", action="change_project", target="project acme", before={}, after=after, reason="<b>")
    told = changes_on("tenancy_project", "acme", "administrator")
    assert "<img" not in told
    assert "<b>" not in told
    assert "w" * 100 not in told


def test_whoever_may_not_see_the_trail_sees_no_changes():
    job = make_job()
    cancel_jobs([job.pk], actor="key:qo_abc", reason="not wanted")
    person = User.objects.create_user("half blind", is_staff=True)
    person.user_permissions.add(Permission.objects.get(codename="view_job"))
    client = Client()
    client.force_login(person)
    page = client.get(reverse("admin:jobs_job_change", args=[job.pk]))
    assert page.status_code == 200
    assert "What people changed" not in page.content.decode()


def test_every_page_of_a_row_has_a_name_in_the_trail():
    assert World.make("nightly import").ids
    for model, page in admin.site._registry.items():
        row = model._default_manager.first()
        if row is not None and hasattr(page, "audit_targets"):
            assert all(target.strip() for target in page.audit_targets(row)), model
