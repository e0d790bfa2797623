"""Which way a new job goes, and what its page, the API and the alerts say of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.features.batch_lane.models import MAX_DEADLINE_HOURS
from jobs.features.batch_lane.operate import cancel_provider_batches
from jobs.features.batch_lane.steps import collect
from jobs.features.batch_lane.steps.advance import NO_BATCHES_HERE
from jobs.features.batch_lane.steps.collect import collect_waiting
from jobs.features.batch_lane.steps.rounds import kinds_with_batches
from jobs.features.batch_lane.watch import watch_provider_batches
from jobs.models import BatchPace, BatchPolicy, Job, PauseSwitch, ProviderBatch, RefusedCalls
from jobs.services.claim.claim import promote_due
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.services.submit.choose_delivery import BadDeadline, NoBatchForm
from jobs.services.submit.spec import MAX_DELAY_SECONDS, JobSpec
from jobs.services.submit.submit import submit_job
from queueops.core.sql import run_sql_as
from queueops.tenancy.models import CredentialSetting, ProducerKey, Scope
from ratelimits.limits import catalogue
from ratelimits.models import Limit, QuotaAlert
from tests.support.cases import every_case
from tests.support.processes import wait_for

PAYLOAD = {"provider": "openai", "credential": "openai-key", "model": "small-1", "prompt": "Why?"}


def submit(**fields):
    spec = JobSpec.model_validate({"kind": "llm.generate", "payload": PAYLOAD} | fields)
    return Job.objects.get(pk=submit_job(spec, project_id="acme", actor="key:test").id)


def in_hours(hours):
    return timezone.now() + timedelta(hours=hours)


@every_case(("hours", "via"), [(30, "batch"), (24.4, None), (1, None)], undone=True)
def test_a_job_goes_by_batch_if_its_deadline_leaves_time_for_one(lane, hours, via):
    lane.credential()
    job = submit(complete_by=in_hours(hours))
    assert job.via == via
    assert (job.scheduled_at is None) is (via is None)


def test_the_learned_pace_of_a_service_decides(lane):
    lane.credential()
    BatchPace.objects.create(service="openai", p95_seconds=600)
    assert submit(complete_by=in_hours(1)).via == "batch"
    assert submit(complete_by=in_hours(0.6)).via is None


def test_a_job_that_says_nothing_goes_as_the_policy_says(lane):
    lane.credential()
    assert submit().via is None
    BatchPolicy.objects.create(kind="llm.generate", complete_within_hours=48)
    assert submit().via == "batch"
    assert submit(via="live").via is None
    BatchPolicy.objects.create(kind="llm.generate", project_id="acme", via="live")
    assert submit().via is None


@every_case(
    ("fields", "error"),
    [
        ({"complete_by": timezone.now() - timedelta(hours=1)}, BadDeadline),
        ({"complete_by": timezone.now() + timedelta(minutes=5), "via": "batch"}, BadDeadline),
        ({"complete_by": timezone.now() + timedelta(days=367)}, BadDeadline),
        ({"complete_by": datetime(9998, 12, 31, tzinfo=UTC), "via": "live"}, BadDeadline),
        ({"via": "batch", "delay_seconds": 60}, NoBatchForm),
        ({"via": "batch", "payload": PAYLOAD | {"split": True, "prompt": "word " * 50_000}}, NoBatchForm),
        (
            {"via": "batch", "kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1/"}},
            NoBatchForm,
        ),
    ],
    undone=True,
)
def test_what_cannot_go_by_batch_is_refused_with_the_field(lane, fields, error):
    lane.credential()
    with pytest.raises(error) as refused:
        submit(**fields)
    assert refused.value.fields


def test_what_goes_to_azure_is_not_collected(lane):
    """Its batches take deployments that answer no live calls, so that nothing could go live at its deadline."""
    credential = lane.credential(base_url="https://acme.openai.azure.com")
    assert submit(complete_by=in_hours(30)).via is None
    with pytest.raises(NoBatchForm):
        submit(complete_by=in_hours(30), via="batch")
    credential.base_url = lane.url
    credential.save()
    job = submit(complete_by=in_hours(30))
    credential.base_url = "https://acme.openai.azure.com"
    credential.save()
    assert collect_waiting(kinds_with_batches()) == []
    job.refresh_from_db()
    assert (job.status, job.via) == ("queued", "batch"), "it goes live in time"


def test_no_deadline_is_further_away_than_a_job_may_be_scheduled():
    assert MAX_DEADLINE_HOURS * 3600 == MAX_DELAY_SECONDS


def test_a_policy_allows_no_more_hours_than_a_deadline_may_be_away(lane, admin_client):
    lane.credential()
    fields = {"kind": "llm.generate", "via": "auto", "complete_within_hours": MAX_DEADLINE_HOURS + 1}
    page = admin_client.post(reverse("admin:jobs_batchpolicy_add"), fields)
    assert f"less than or equal to {MAX_DEADLINE_HOURS}" in page.content.decode()
    assert not BatchPolicy.objects.exists()
    BatchPolicy.objects.create(kind="llm.generate", complete_within_hours=2_000_000_000)  # saved before the bound
    assert submit().complete_by < timezone.now() + timedelta(hours=MAX_DEADLINE_HOURS)


@every_case(
    ("fields", "told"),
    [
        ({"kind": "http.request"}, "No kind of this name has a batch form here"),
        ({"kind": "nope"}, "No kind of this name has a batch form here"),
        ({"complete_within_hours": 0}, "greater than or equal to 1"),
    ],
    undone=True,
)
def test_a_policy_by_which_nothing_could_go_is_refused_by_its_field(db, admin_client, fields, told):
    given = {"kind": "llm.generate", "via": "auto", "complete_within_hours": 48} | fields
    page = admin_client.post(reverse("admin:jobs_batchpolicy_add"), given)
    assert told in page.content.decode()
    assert not BatchPolicy.objects.exists()


def test_claims_see_a_job_of_the_lane_once_it_must_go_live(lane):
    lane.credential()
    job = submit(complete_by=in_hours(30))
    assert promote_due()[0] == 0
    Job.objects.filter(pk=job.pk).update(scheduled_at=in_hours(-1))
    assert promote_due()[0] == 1
    assert collect_waiting(kinds_with_batches()) == []


@pytest.mark.django_db(transaction=True)
def test_what_is_paused_is_not_collected(lane):
    lane.credential()
    submit(complete_by=in_hours(30))
    pause_scope("project", "acme", actor="user:1")
    assert collect_waiting(kinds_with_batches()) == []
    resume_scope("project", "acme", actor="user:1")
    assert len(collect_waiting(kinds_with_batches())) == 1


@pytest.mark.django_db(transaction=True)
def test_nothing_is_collected_for_a_credential_or_model_whose_calls_have_stopped(lane):
    lane.credential()
    submit(complete_by=in_hours(30))
    stopped = RefusedCalls.objects.create(
        name="it", project_id="acme", service="openai", code="x", failures=1, stopped_at=timezone.now()
    )
    PauseSwitch.objects.create(scope="refused", key="it", paused_by="system")
    for model, credential in (("", "openai-key"), ("small-1", "openai-key")):
        RefusedCalls.objects.filter(pk=stopped.pk).update(model=model, credential=credential)
        assert collect_waiting(kinds_with_batches()) == [], model
    RefusedCalls.objects.filter(pk=stopped.pk).update(credential="another")
    assert len(collect_waiting(kinds_with_batches())) == 1, "of another key nothing is known"


@pytest.mark.django_db(transaction=True)
def test_a_batch_is_as_large_as_the_limit_of_enqueued_tokens_has_room(lane):
    lane.credential()
    Limit.objects.create(
        name="enqueued", service="openai", unit="enqueued_tokens", algorithm="concurrency", capacity=70, scope="global"
    )
    catalogue.forget()
    lane.submit(10)
    lane.tend()
    batch = ProviderBatch.objects.get()
    assert 0 < batch.lines < 10
    assert batch.enqueued_tokens <= 70
    lane.tend()
    assert ProviderBatch.objects.count() == 1, "the rest waits until it ends"
    lane.tend_until_closed()
    lane.tend()
    assert ProviderBatch.objects.count() > 1


@pytest.mark.django_db(transaction=True)
def test_what_there_is_no_room_for_is_not_locked_and_measured_at_each_turn(lane, monkeypatch):
    lane.credential()
    Limit.objects.create(
        name="enqueued", service="openai", unit="enqueued_tokens", algorithm="concurrency", capacity=70, scope="global"
    )
    catalogue.forget()
    lane.submit(10)
    asked = []

    def note(row, package, name, parameters):
        asked.append(name)
        return run_sql_as(row, package, name, parameters)

    monkeypatch.setattr(collect, "run_sql_as", note)
    for _ in range(5):
        collect_waiting(kinds_with_batches())
    assert ProviderBatch.objects.count() == 1
    assert asked.count("choose_batch_jobs") == 2
    lane.tend_until_closed()
    asked.clear()
    collect_waiting(kinds_with_batches())
    assert asked.count("choose_batch_jobs") == 1, "the batch that has ended made room"


def test_small_batches_wait_for_company(lane, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_collect_seconds=60.0)
    lane.credential()
    submit(complete_by=in_hours(30))
    assert collect_waiting(kinds_with_batches()) == []
    Job.objects.update(updated_at=timezone.now() - timedelta(seconds=120))
    assert len(collect_waiting(kinds_with_batches())) == 1


@pytest.mark.django_db(transaction=True)
def test_the_api_shows_and_cancels_the_projects_batches(lane):
    lane.credential()
    lane.submit(2)
    lane.tend()
    batch = ProviderBatch.objects.get()
    _, secret = ProducerKey.issue(batch.project, name="k", scopes=list(Scope.values))
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    [listed] = client.get("/api/v1/provider-batches/").json()["results"]
    assert (listed["id"], listed["lines"]) == (str(batch.pk), 2)
    [*jobs] = client.get("/api/v1/jobs/?via=batch").json()["results"]
    assert {job["via"] for job in jobs} == {"batch"}
    answer = client.post(f"/api/v1/provider-batches/{batch.pk}/cancel/", {}, content_type="application/json")
    assert answer.status_code == 200
    assert answer.json()["cancel_requested_at"]
    assert lane.tend_until_closed().state in {"cancelled", "completed"}


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_stands_still_raises_an_alert_with_its_jobs(lane, sandbox, admin_client):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 60}})
    lane.credential()
    lane.submit(2)
    lane.tend()
    lane.tend()
    watch_provider_batches()
    assert not QuotaAlert.objects.exists()
    ProviderBatch.objects.update(progressed_at=timezone.now() - timedelta(days=2))
    watch_provider_batches()
    batch, alert = ProviderBatch.objects.get(), QuotaAlert.objects.get(resolved_at=None)
    live = f"{batch.live_at:%Y-%m-%d %H:%M} UTC"
    assert f"of {batch.project_id} stands still at 0 of 2 lines; what is not done by {live} goes live" in alert.message
    about = admin_client.get(reverse("admin:ratelimits_quotaalert_change", args=[alert.pk])).content.decode()
    address = reverse("admin:jobs_providerbatch_change", args=[batch.pk])
    assert f'href="{address}">{batch.provider_id}' in about
    page = admin_client.get(address).content.decode()
    assert "Cancel batch" in page
    assert all(reverse("admin:jobs_job_change", args=[job]) in page for job in Job.objects.values_list("pk", flat=True))
    job = admin_client.get(reverse("admin:jobs_job_change", args=[Job.objects.latest("pk").pk]))
    assert "Provider batch" in job.content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_alert_of_a_batch_that_stood_still_ends_once_it_goes_on_or_has_ended(lane, sandbox):
    def alerts():
        watch_provider_batches()
        return list(QuotaAlert.objects.filter(resolved_at=None).values_list("kind", flat=True))

    def stand_still(**heard):
        ProviderBatch.objects.update(progressed_at=timezone.now() - timedelta(days=2), **heard)

    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 600}})
    lane.credential()
    lane.submit(2)
    lane.tend()
    wait_for(lambda: lane.tend() or ProviderBatch.objects.get().provider_state == "in_progress", what="its begin")
    stand_still(provider_state="validating")
    assert alerts() == ["provider_batch"]
    lane.tend()
    assert (ProviderBatch.objects.get().state, alerts()) == ("open", []), "it goes on"
    stand_still()
    lane.tend()
    assert alerts() == ["provider_batch"], "that somebody has looked is no progress"
    cancel_provider_batches([ProviderBatch.objects.get().pk], actor="user:1")
    assert (lane.tend_until_closed().state, alerts()) == ("cancelled", [])


@pytest.mark.django_db(transaction=True)
def test_a_server_without_batches_is_learned_by_its_first_refusal_and_later_jobs_go_live(lane):
    key = lane.credential(base_url=f"{lane.url}/of-nothing")
    lane.submit(2)
    lane.tend()
    assert not Job.objects.filter(scheduled_at__gt=timezone.now()).exists(), "they go live"
    row = CredentialSetting.objects.get()
    assert (row.credential_id, row.base_url, row.model, row.takes) == (key.pk, key.base_url, "small-1", "no_batches")
    with pytest.raises(NoBatchForm, match="takes no batches"):
        submit(via="batch")
    assert submit(complete_by=in_hours(30)).via is None


def test_words_that_no_batch_is_taken_are_told_from_other_faults_of_a_batch():
    taught = {
        "The provided model 'o9' is not supported by the Batch API.": True,
        "models/x is not found for API version v1beta, or is not supported for batchGenerateContent.": True,
        "Batch requests are not supported for this deployment.": True,
        "This endpoint does not support batch processing": True,
        "The batch input file is empty.": False,
        "Your batch has too many lines. Streaming is not supported.": False,
        "temperature is not supported": False,
    }
    assert {words: NO_BATCHES_HERE.search(words) is not None for words in taught} == taught
