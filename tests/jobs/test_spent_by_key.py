"""The report of spend by who submitted the jobs, and by the credential that they showed."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobs.models import Job
from jobs.services.explain import spent_by_key
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from queueops.tenancy.models import ProducerKey
from ratelimits.models import Spend
from tests.factories import KIND, make_batch, make_job, make_project
from tests.support.people import permitted, signed_in

pytestmark = pytest.mark.django_db

REPORT = "/admin/ratelimits/spend/report/"


def pay(job: Job, money: int, *, provider: str = "openai") -> None:
    Spend.objects.create(
        job_id=job.pk,
        token=1,
        project_id=job.project_id,
        batch_id=job.batch_id,
        provider=provider,
        model="m",
        at=timezone.now(),
        money=money * 1_000_000,
    )


def shares(by: str, **more: str) -> dict[str, Decimal]:
    """Return what each is said to have spent, by name."""
    page = signed_in("viewer").get(REPORT, {"by": by, **more}).content.decode()
    rows = re.findall(r'qo-share-name">([^<]*?)\s*</span>.*?qo-number">([0-9.]+)', page)
    return {name: Decimal(money) for name, money in rows}


def test_spend_is_told_by_the_key_that_submitted_with_a_batch_and_alone():
    project = make_project()
    key, _ = ProducerKey.issue(project, name="nightly")
    anna = User.objects.create(username="anna")
    pay(make_job(batch=make_batch(submitted_by=f"key:{key.prefix}")), 5)
    request = JobSpec(kind=KIND, payload={"method": "GET", "url": "https://api.example.org/1"})
    single = submit_job(request, project_id=project.pk, actor=f"key:{key.prefix}")
    pay(Job.objects.get(pk=single.id), 2)
    pay(make_job(batch=make_batch(submitted_by=f"user:{anna.pk}")), 1)
    gone = make_job()
    pay(gone, 3)
    Job.objects.filter(pk=gone.pk).delete()
    assert shares("key") == {f"key nightly ({key.prefix}…)": 7, spent_by_key.GONE: 3, "anna": 1}
    assert shares("key", project="other") == {}


def test_spend_is_told_by_the_credential_that_paid_and_not_by_that_of_another_way():
    for name, money in (("old-account", 4), ("new-account", 2), ("old-account", 1), (None, 3)):
        pay(make_job(service="openai", credential=name), money)
    pay(make_job(service="anthropic", credential="claude"), 6)
    assert shares("credential") == {"old-account": 5, "new-account": 2, "none": 3, spent_by_key.GONE: 6}


def test_more_calls_than_can_be_looked_at_are_said_to_be(monkeypatch: pytest.MonkeyPatch):
    for _ in range(3):
        pay(make_job(), 1)
    monkeypatch.setattr(spent_by_key, "MAX_CALLS", 2)
    page = signed_in("viewer").get(REPORT, {"by": "key"}).content.decode()
    assert "Choose fewer days, or a project" in page
    assert "for 3 calls" in page, "the sum of all stands"


def test_it_needs_the_right_to_see_spend():
    assert permitted("view_job").get(REPORT, {"by": "key"}).status_code == 403


def test_the_page_of_a_key_says_whether_it_is_used_and_leads_to_what_it_cost():
    key, _ = ProducerKey.issue(make_project(), name="nightly", last_used_at=timezone.now())
    ProducerKey.objects.update(revoked_at=timezone.now())
    address = f"/admin/tenancy/producerkey/{key.pk}/change/"
    page = signed_in("administrator").get(address).content.decode()
    for shown in (key.prefix, "revoked", "as set for all", f"{REPORT}?by=key&amp;project=acme"):
        assert shown in page
    assert re.search(r'<time class="qo-time"[^>]*>\d+ s ago|>now<', page), "when it was used last"
    assert REPORT not in permitted("view_producerkey").get(address).content.decode()
