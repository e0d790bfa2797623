"""Actions on thousands of rows, files of jobs and saved filters, as an operator uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from jobs.models import Batch, BulkOperation, DeadLetter, Executor, FlowSample, Job, PauseSwitch, SavedFilter, Upload
from jobs.services.operate.bulk_run import run_bulk_chunk
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from tests.browser.conftest import reload
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs
from tests.support.people import signed_in
from tests.support.processes import manage, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

CSV = """kind,priority,idempotency_key,payload.method,payload.url,payload.json:json
http.request,normal,row-1,PUT,http://127.0.0.1:9/rows/1,"{""n"": 1}"
http.request,highest,row-2,PUT,http://127.0.0.1:9/rows/2,"{""n"": 2}"
http.request,low,row-3,PUT,http://127.0.0.1:9/rows/3,"{""n"": 3}"
no.such_kind,low,row-4,PUT,http://127.0.0.1:9/rows/4,
http.request,low,row-5,PUT,http://127.0.0.1:9/rows/5,{broken
http.request,urgent,row-6,GET,http://127.0.0.1:9/rows/6,
"""


@pytest.fixture
def workers() -> Iterator[None]:
    """A real cluster on the test's database that carries operations out, and no jobs: all work is paused."""
    PauseSwitch.objects.create(scope="global", reason="the test looks at operations alone", paused_by="system")
    with manage("qcluster", environ={"QUEUEOPS_WORKERS": "1"}) as process:
        process.wait_for_output("is ready", seconds=60)
        yield


def the_operation_at(page: Page) -> UUID:
    page.wait_for_url("**/admin/jobs/bulkoperation/*/change/**")
    found = re.search(r"/([0-9a-f-]{36})/", page.url)
    assert found is not None
    return UUID(found[1])


def carry_out(operation_id: UUID) -> None:
    while run_bulk_chunk(operation_id):
        pass


def test_a_double_click_starts_one_operation(page: Page):
    make_dead_letters(3, fingerprint="a" * 32)
    page.goto("/admin/jobs/deadletter/by-cause/")
    page.get_by_role("link", name="Requeue all").first.click()
    page.get_by_label("Note").fill("the backend is up again")
    page.get_by_role("button", name="Requeue all").dblclick(delay=100)  # a hand is no faster
    operation_id = the_operation_at(page)
    assert list(BulkOperation.objects.values_list("pk", flat=True)) == [operation_id]


def test_five_thousand_dead_letters_are_requeued_over_time_and_stopped_half_way(page: Page, shoot, workers):
    make_dead_letters(5000, fingerprint="a" * 32, error_message="HTTP 503: quota backend is down")
    make_dead_letters(7, fingerprint="b" * 32)
    page.goto("/admin/jobs/deadletter/by-cause/")
    expect(page.get_by_text("5,000 open")).to_be_visible()
    shoot("dead-letter-causes")
    page.get_by_role("link", name="Requeue all").first.click()
    expect(page.get_by_text("5,000 will be requeued.")).to_be_visible()
    page.get_by_label("Spread over minutes").fill("0.6")
    page.get_by_label("Note").fill("the backend is up again")
    page.get_by_role("button", name="Requeue all").click()
    operation_id = the_operation_at(page)

    def done() -> int:
        return int(BulkOperation.objects.get(pk=operation_id).done)

    wait_for(lambda: done() >= 1500, seconds=60, what="fifteen hundred requeues")
    reload(page)
    shoot("bulk-operation")
    page.get_by_role("link", name="Stop").click()
    page.get_by_label("Reason").fill("looks wrong after all")
    page.get_by_role("button", name="Yes, stop").click()
    expect(page.get_by_text("1 stopped, 0 left alone.")).to_be_visible()
    operation = BulkOperation.objects.get(pk=operation_id)
    assert operation.status == "cancelled"
    assert 1500 <= operation.done < 5000
    expect(page.get_by_text(f"{operation.done:,} done, 0 left alone, of 5,000 that matched.")).to_be_visible()
    requeued = DeadLetter.objects.filter(resolution="requeued")
    assert requeued.count() == operation.done
    assert Job.objects.filter(origin__isnull=False).count() == operation.done
    assert DeadLetter.objects.open().count() == 5007 - operation.done
    started, ended = AuditEntry.objects.filter(action="bulk_requeue_dead_letters").order_by("id")
    assert (started.moved, ended.moved, ended.reason) == (0, operation.done, "looks wrong after all")


def test_a_file_with_three_bad_rows_is_shown_with_them_and_only_the_good_ones_go_in(page: Page, shoot):
    make_job()
    Executor.objects.create(host="h", pid=1, process_started_at=0, cluster_pid=1, slots=2)
    FlowSample.objects.create(
        span_seconds=0, at=timezone.now(), service="http:127.0.0.1", latencies=[1], latency_ms=90_000
    )
    page.goto("/admin/jobs/batch/")
    page.get_by_role("link", name="Upload a file of jobs").click()
    page.get_by_label("File").set_input_files({"name": "rows.csv", "mimeType": "text/csv", "buffer": CSV.encode()})
    page.get_by_label("Project").select_option("acme", force=True)
    page.get_by_role("button", name="Check the file").click()
    expect(page.get_by_text("3 of 6 jobs are not valid. Nothing is submitted yet.")).to_be_visible()
    faults = page.get_by_label("What is wrong").locator("tbody tr")
    expect(faults).to_have_count(3)
    for place, (row, where) in enumerate((("3", "priority"), ("5", "no.such_kind"), ("6", "payload.json:json"))):
        expect(faults.nth(place).locator("td").first).to_have_text(row)
        expect(faults.nth(place)).to_contain_text(where)
    expect(page.get_by_label("Forecast").get_by_text(re.compile("in 2 min|in 3 min"))).to_be_visible()
    shoot("upload")
    assert Job.objects.count() == 1
    page.get_by_role("button", name="Submit the 3 valid ones, leave out 3").click()
    page.wait_for_url("**/admin/jobs/batch/*/change/**")
    batch = Batch.objects.get()
    assert (batch.name, batch.total) == ("rows.csv", 3)
    assert set(batch.jobs.values_list("idempotency_key", flat=True)) == {"row-1", "row-3", "row-6"}
    page.go_back()
    page.reload()
    expect(page.get_by_text("Submitted as batch")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Submit"))).to_have_count(0)


def test_all_that_match_on_every_page_are_cancelled_in_the_background(page: Page, shoot):
    wanted = make_jobs(120, priority="low")
    make_jobs(30)
    make_jobs(20, priority="low", state=JobState.COMPLETED)
    page.goto("/admin/jobs/job/?priority=low")
    expect(page.locator("#result_list tbody")).to_have_count(50)
    page.get_by_role("group", name="All that match").get_by_role("link", name="Cancel").click()
    expect(page.get_by_text("120 will be cancelled.")).to_be_visible()
    page.get_by_role("button", name="Yes, cancel all").click()
    expect(page.get_by_text("This field is required.")).to_be_visible()
    assert not BulkOperation.objects.exists()
    page.get_by_label("Reason").fill("the wrong spreadsheet")
    shoot_of_confirmation(page, shoot)
    page.get_by_label("Reason").fill("the wrong spreadsheet")
    page.get_by_role("button", name="Yes, cancel all").click()
    operation_id = the_operation_at(page)
    expect(page.get_by_text("0 done, 0 left alone, of 120 that matched.")).to_be_visible()
    carry_out(operation_id)
    expect(page.get_by_text("120 done, 0 left alone, of 120 that matched.")).to_be_visible()
    assert set(Job.objects.filter(status="cancelled").ids()) == {job.pk for job in wanted}


def shoot_of_confirmation(page: Page, shoot: Any) -> None:
    """The page that asks, as a first visit shows it."""
    page.goto("/admin/jobs/job/all-cancel/?priority=low")
    shoot("confirm")


def test_filters_are_saved_shared_and_forgotten(page: Page, chromium: Browser, live_server: Any):
    make_jobs(2, priority="urgent")
    make_jobs(3)
    page.goto("/admin/jobs/job/?priority=urgent")
    page.get_by_role("link", name="Save these filters").click()
    page.get_by_label("Name").fill("urgent ones")
    page.get_by_label("Share it with everybody").check()
    page.get_by_role("button", name="Save").click()
    page.goto("/admin/jobs/job/")
    page.get_by_label("Saved filters").get_by_role("link", name="urgent ones").click()
    expect(page.locator("#result_list tbody")).to_have_count(2)
    viewer = page_of("viewer", chromium, live_server)
    viewer.goto("/admin/jobs/job/")
    viewer.get_by_label("Saved filters").get_by_role("link", name="urgent ones").click()
    expect(viewer.locator("#result_list tbody")).to_have_count(2)
    expect(viewer.get_by_role("link", name="Forget urgent ones")).to_have_count(0)
    viewer.context.close()
    page.get_by_role("link", name="Forget urgent ones").click()
    page.get_by_role("button", name="Yes, forget it").click()
    assert not SavedFilter.objects.exists()


def test_a_viewer_sees_the_screens_and_may_do_none_of_it(chromium: Browser, live_server: Any):
    batch = make_batch()
    make_jobs(2, batch=batch)
    letter = make_dead_letter()
    operation = BulkOperation.objects.create(action="cancel_jobs", parameters={"filter": {}}, total=1, actor="user:1")
    page = page_of("viewer", chromium, live_server)
    for address in (
        "/admin/jobs/job/",
        "/admin/jobs/batch/",
        "/admin/jobs/deadletter/",
        "/admin/jobs/deadletter/by-cause/",
        f"/admin/jobs/bulkoperation/{operation.pk}/change/",
        f"/admin/jobs/deadletter/{letter.pk}/change/",
        "/admin/jobs/pauseswitch/",
        "/admin/jobs/upload/",
    ):
        assert page.goto(address).status == 200, address  # type: ignore[union-attr]
        forbidden = re.compile(
            r"^\W*(Requeue|Discard|Cancel|Run now|Upload|Stop|Pause|CSV|NDJSON|Schedule|Change prio)"
        )
        expect(page.locator("main").get_by_role("link", name=forbidden)).to_have_count(0)
    for address in (
        "/admin/jobs/job/all-cancel/",
        "/admin/jobs/job/all-run-now/",
        "/admin/jobs/deadletter/all-requeue/",
        "/admin/jobs/deadletter/all-discard/",
        "/admin/jobs/deadletter/export.csv",
        f"/admin/jobs/bulkoperation/{operation.pk}/stop/",
        "/admin/jobs/pauseswitch/pause/",
        "/admin/jobs/upload/add/",
    ):
        assert page.goto(address).status == 403, address  # type: ignore[union-attr]
    page.context.close()
    assert not AuditEntry.objects.exclude(action="sign_in").exists()
    assert not Upload.objects.exists()


def page_of(role: str, chromium: Browser, live_server: Any) -> Page:
    """A page of somebody with a role, signed in already."""
    context = chromium.new_context(base_url=live_server.url)
    cookie = signed_in(role).cookies["sessionid"].value
    context.add_cookies([{"name": "sessionid", "value": cookie, "url": live_server.url}])
    return context.new_page()
