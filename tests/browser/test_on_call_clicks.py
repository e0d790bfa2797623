"""Questions of an hour on call, asked from the dashboard: the clicks that each takes, as docs say, none above three."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from dashboards.services.shared import cache
from jobs.models import Job, ServiceBreaker
from jobs.services.operate.pauses import pause_scope
from jobs.states import JobState
from ratelimits.models import Limit
from ratelimits.tuning.limits import update_limit
from tests.factories import make_batch, make_jobs
from tests.support.all_faults import all_faults
from tests.support.busy_dashboard import open_dashboard

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_figures")]

DOCS = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "incidents.md"
MAX_CLICKS = 3


@dataclass(frozen=True)
class Question:
    """
    Attributes:
        clicks: What is clicked, one after the other, from the dashboard on; `/text` is typed into the box that has the
            focus, and sent off.
        answer: What the page says in the end, in `where`.
    """

    asked: str
    clicks: Sequence[str]
    answer: str
    where: str = "body"

    @property
    def counted(self) -> int:
        return sum(not one.startswith("/") for one in self.clicks)


QUESTIONS = (
    Question("Is work flowing, and what holds it back?", (), "does not answer", "#live"),
    Question("Who paused what, and why?", (), "operator: a release", "#live"),
    Question("Which executors work, and how late is each?", (), "worker-1:4100", "#executors"),
    Question("When does this batch end?", (), "Monthly report, all regions", "#batches"),
    Question(
        "Which service is out, since when, and how many jobs wait?", ("a:has-text('does not answer')",), "down.example"
    ),
    Question("What holds this batch?", ("#batches a:has-text('Monthly report')",), "What holds it"),
    Question("Why does this job wait?", ("form.find input", "/{job}"), "What it waits for"),
    Question("Why do jobs fail?", ("a:has-text('dead letters need')",), "no access to this sheet"),
    Question(
        "What did the newest of them log, and where did it fail?",
        ("a:has-text('dead letters need')", "a:has-text('Newest')"),
        "forbidden",
    ),
    Question(
        "Do all of a cause again",
        ("a:has-text('dead letters need')", "a:has-text('Requeue all')", "button.qo-button-main"),
        "Started over",
    ),
    Question("Which limit holds work, and raise it", ("#limits a:has-text('Tune')",), "Capacity"),
    Question("Who changed this limit last?", ("#limits a:has-text('Tune')",), "they halved it", ".qo-history"),
    Question("What does this alert want of me?", ("#alerts a:has-text('Runbook')",), "What to do"),
    Question(
        "Stop everything",
        ("#steering button:has-text('Pause everything')", "#dialog-yes"),
        "Everything is paused",
        "#live",
    ),
)


@pytest.fixture
def night(page: Page, busy: dict[str, Any]) -> Job:
    """An hour on call; a job that waits."""
    person = User.objects.get(username="operator")
    actor = f"user:{person.pk}"
    pause_scope("project", "globex", actor=actor, reason="a release")
    make_jobs(
        9,
        state=JobState.RATE_LIMITED,
        service="http:down.example",
        project="initech",
        batch=make_batch(project="initech"),
    )
    ServiceBreaker.objects.create(service="http:down.example", project_id="initech", opened_at=timezone.now(), holds=9)
    update_limit(Limit.objects.get(name="sheets-write").pk, {"capacity": 299}, actor=actor, reason="they halved it")
    cache.forget_all()
    return Job.objects.filter(project_id="globex", status=JobState.QUEUED)[0]


def test_each_question_is_answered_in_as_many_clicks_as_docs_say(page: Page, night: Job):
    with all_faults() as of:
        for question in QUESTIONS:  # one hour: what is done again and what is stopped stays so
            with of(question.asked):
                assert question.counted <= MAX_CLICKS
                open_dashboard(page)
                for one in question.clicks:
                    if one.startswith("/"):
                        page.keyboard.type(one[1:].format(job=night.pk))
                        page.keyboard.press("Enter")
                    else:
                        page.locator(one).first.click()
                    page.wait_for_load_state()
                expect(page.locator(question.where).first).to_contain_text(question.answer)


def test_docs_name_each_question_with_its_clicks():
    rows = re.findall(r"^\| ([^|]+) \| (\d) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(asked.strip(), int(clicks)) for asked, clicks in rows] == [(one.asked, one.counted) for one in QUESTIONS]
    assert len(rows) == 14
