"""The page of a kind, and doing an ended job's work again from its page."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from jobs.admin.jobs import kinds
from jobs.models import DeadLetter, Executor, Job, Tag
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from tests.factories import KIND, make_dead_letters, make_job, make_jobs
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db
PAYLOAD = '{"method": "GET", "url": "https://api.example.org/rows/7", "headers": {"Authorization": "Bearer abc"}}'


def page_of(kind: str = KIND, role: str = "viewer") -> str:
    answer = signed_in(role).get(reverse("admin:jobs_job_kind", args=[kind]))
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def took(jobs: list[Job], *, wait: float, run: float) -> None:
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(
        first_attempt_at=F("eligible_since") + timedelta(seconds=wait),
        started_at=F("eligible_since") + timedelta(seconds=wait),
        finished_at=F("eligible_since") + timedelta(seconds=wait + run),
    )


def test_it_says_how_long_jobs_wait_and_run_and_why_they_fail():
    took(make_jobs(18, state=JobState.COMPLETED), wait=2, run=0.25)
    took([letter.job for letter in make_dead_letters(2)], wait=90, run=8)
    make_jobs(3)
    page = page_of()
    for name, figure, meaning in (
        ("Jobs", "23", "3 wait, 0 run"),
        ("Failed", "10.0%", "2 of 20 that ended"),
        ("Wait, half within", "2 s", "before the first attempt"),
        ("Wait, 95 % within", "1 min 30 s", "before the first attempt"),
        ("Run, half within", "250 ms", "of the last attempt"),
    ):
        shown = f'<dt>{name}</dt><dd class="qo-number">{figure}</dd><dd class="qo-muted">{meaning}</dd>'
        assert shown in page, f"{name}: {page[page.index(name) :][:200]}"
    assert "kind=http.request&amp;error_code=not_found" in page
    assert "10.0%</td>" in page
    assert "What its handler promises" in page


def test_the_picture_is_marked_where_workers_that_carry_it_out_were_started():
    jobs = make_jobs(4, state=JobState.COMPLETED)
    took(jobs[:2], wait=0, run=0)
    took(jobs[2:], wait=0, run=600)
    begun = Job.objects.get(pk=jobs[0].pk).eligible_since.timestamp()
    cluster, other = uuid4(), uuid4()
    for number, (of, kinds_known, after) in enumerate(
        (
            (cluster, {KIND: ""}, 300),
            (cluster, {KIND: ""}, 420),
            (other, {"other.kind": ""}, 200),
            (uuid4(), {KIND: ""}, -90),
        )
    ):
        Executor.objects.create(
            host="h",
            pid=number,
            process_started_at=begun + after,
            cluster_pid=1,
            cluster_id=of,
            slots=1,
            kinds=kinds_known,
        )
    page = page_of()
    assert page.count('class="qo-mark"') == 1, (
        "one of its clusters began meanwhile, and one process of it a little later"
    )
    assert "Workers were started" in page


def test_a_kind_without_jobs_says_what_it_would_do_and_an_unknown_one_is_none():
    assert "No job of this kind was submitted in the last 24 h" in page_of()
    unknown = reverse("admin:jobs_job_kind", args=["no.such.kind"])
    assert signed_in("viewer").get(unknown).status_code == 404


def test_jobs_of_a_kind_that_nobody_knows_any_more_have_a_page():
    make_jobs(2, kind="gone.kind")
    assert "No handler of this process carries it out." in page_of("gone.kind")


def test_failures_are_told_by_time_and_by_what_is_open_however_many_jobs_of_other_kinds_came_since(monkeypatch):
    """It said that none had failed, 0.0 %, with 842 of its dead letters open."""
    monkeypatch.setattr(kinds, "MAX_LOOKED_AT", 4)
    letters = make_dead_letters(3)
    make_jobs(9, kind="other.kind")
    page = page_of()
    assert '<dt>Open dead letters</dt><dd class="qo-number">3</dd>' in page
    assert "None has failed" not in page
    assert 'not_found</a></td><td class="qo-right">3</td>' in page
    assert "Of the newest 4 jobs of all kinds" in page
    # Those of last week that are open stay told, and are not of this hour's share.
    monkeypatch.setattr(kinds, "MAX_LOOKED_AT", 100)
    moved = DeadLetter.objects.filter(pk__in=[letter.pk for letter in letters])
    moved.update(created_at=timezone.now() - timedelta(days=3))
    make_jobs(1, state=JobState.COMPLETED)
    page = page_of()
    assert '<dt>Open dead letters</dt><dd class="qo-number">3</dd>' in page
    assert '<dd class="qo-number">0.0%</dd><dd class="qo-muted">0 of 1 that ended' in page
    week = signed_in("viewer").get(f"{reverse('admin:jobs_job_kind', args=[KIND])}?span=week").content.decode()
    assert "3 of 4 that ended" in week
    moved.update(resolution="discarded")
    assert "None has failed in the span, and no dead letter is open." in page_of()


def test_only_the_newest_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kinds, "MAX_LOOKED_AT", 4)
    make_jobs(4)
    assert "the newest 4" not in page_of()
    make_jobs(5)
    assert '<dd class="qo-number">4</dd>' in (page := page_of())
    assert "the newest 4" in page


def test_the_list_of_kinds_leads_to_each_and_who_may_not_see_jobs_sees_none():
    assert (
        reverse("admin:jobs_job_kind", args=[KIND])
        in signed_in("viewer").get(reverse("admin:jobs_job_kinds")).content.decode()
    )
    assert "Pause it" in page_of(role="operator")
    assert "Pause it" not in page_of(role="viewer")
    for address in (reverse("admin:jobs_job_kinds"), reverse("admin:jobs_job_kind", args=[KIND])):
        assert signed_in("limits manager").get(address).status_code in {200, 403}


def again(job: Job, role: str = "operator", **given: str):
    address = f"{reverse('admin:jobs_job_change', args=[job.pk])}again/".replace("/change/again/", "/again/")
    return (
        signed_in(role).post(address, {"confirmed": "yes", "once": "x", **given})
        if given
        else signed_in(role).get(address)
    )


def test_an_ended_jobs_work_is_done_once_more_with_another_payload():
    user = uuid4()
    job = make_job(state=JobState.COMPLETED, payload=PAYLOAD, user_id=user, priority="urgent")
    Tag.objects.create(owner_id=job.pk, project_id="acme", name="nightly")
    form = again(job).content.decode()
    assert "Bearer abc" not in form
    edited = PAYLOAD.replace("rows/7", "rows/8").replace("Bearer abc", "••••••")
    assert again(job, payload=edited, reason="the row moved").status_code == 302
    new = Job.objects.exclude(pk=job.pk).get()
    assert (new.kind, new.project_id, new.user_id, new.priority, new.status) == (KIND, "acme", user, "urgent", "queued")
    assert new.payload["url"].endswith("rows/8")
    assert new.payload["headers"]["Authorization"] == "Bearer abc"
    assert new.effect_key != job.effect_key
    assert Tag.objects.of([new.pk]) == {new.pk: ["nightly"]}
    entry = AuditEntry.objects.get(action="run_again")
    assert (entry.target, entry.after, entry.reason) == (f"job {job.pk}", {"job": str(new.pk)}, "the row moved")


def test_a_page_that_is_sent_twice_does_the_work_once_more_and_not_twice():
    job = make_job(state=JobState.COMPLETED)
    once = re.search(r'name="once" value="([^"]+)"', again(job).content.decode())
    answers = [again(job, payload=PAYLOAD, reason="again", once=once[1] if once else "") for _ in range(2)]
    new = Job.objects.exclude(pk=job.pk).get()
    assert {answer.headers["Location"] for answer in answers} == {reverse("admin:jobs_job_change", args=[new.pk])}
    assert AuditEntry.objects.filter(action="run_again").count() == 1


def test_a_request_whose_hidden_field_is_wrong_is_told_so():
    job = make_job(state=JobState.COMPLETED)
    answer = again(job, payload=PAYLOAD, reason="again", once="x" * 101)
    assert answer.status_code == 200
    assert "once: Ensure this value has at most 100 characters" in answer.content.decode()
    assert Job.objects.count() == 1


@every_case("payload", ["{", "[]", '{"method": "GET"}', '{"method": "NO", "url": "https://a.test/"}'], undone=True)
def test_a_payload_that_its_kind_does_not_take_is_refused_and_nothing_is_submitted(payload: str):
    job = make_job(state=JobState.COMPLETED)
    answer = again(job, payload=payload, reason="tried")
    assert answer.status_code == 200
    assert Job.objects.count() == 1
    assert not AuditEntry.objects.filter(action="run_again").exists()


def test_neither_a_viewer_nor_a_job_that_has_not_ended_does_anything_again():
    ended, waits = make_job(state=JobState.COMPLETED), make_job()
    assert again(ended, "viewer", payload=PAYLOAD, reason="tried").status_code == 403
    again(waits, payload=PAYLOAD, reason="tried")
    assert Job.objects.count() == 2
