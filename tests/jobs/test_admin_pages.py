"""What the admin's pages show, hide and do."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import F
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone

from jobs.admin.jobs.timeline import attempts_of, path_of
from jobs.admin.states import state_badge
from jobs.features.uploads.uploads import store_upload
from jobs.models import (
    AgingRule,
    BulkOperation,
    DeadLetter,
    Executor,
    Job,
    MaintenanceWindow,
    PauseSwitch,
    RetryPolicy,
    SavedFilter,
    ServiceBreaker,
    Webhook,
)
from jobs.services.explain.finish_histogram import pace_of
from jobs.services.explain.history import read_history
from jobs.services.operate import bulk_run
from jobs.states import SHOWN, JobState
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops.core.values.masking import MASK, masked, masked_text, pretty, unmasked
from queueops.tenancy.models import ProducerKey, digest_of
from queueops.tenancy.secrets.signing import open_signing_secret
from ratelimits.alerts.alerts import open_alert
from ratelimits.models import QuotaAlert
from tests.factories import make_batch, make_dead_letter, make_dead_letters, make_job, make_jobs, make_project
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

CORPUS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "{{ 7*7 }}{% debug %}",
    "javascript:alert(1)",
    "<!--<script>",
]
PAGES = ["jobs_job", "jobs_deadletter", "jobs_batch"]
RAW = re.compile(r"<script>alert|<img src=x|<svg onload|<[^>]*' onmouseover='alert|<!--<script>", re.IGNORECASE)
SECRET = "sk-7f3a9c-very-secret"


@every_case("text", CORPUS, undone=True)
@pytest.mark.matrix
def test_what_producers_and_providers_wrote_is_shown_as_text_on_every_page(text):
    batch = make_batch(name=text, submitted_by=text)
    letter = make_dead_letter(
        batch=batch,
        payload=json.dumps({text: [text]}),
        error_message=text,
        error_class=text,
        remediation=text,
        note=text,
        attempts=[{"at": text, "message": text, "details": {text: text}}],
    )
    Job.objects.filter(pk=letter.job_id).update(
        result={text: text}, progress_message=text, last_error_message=text, last_error_code="x", effect_key=text
    )
    PauseSwitch.objects.create(scope="kind", key=text, reason=text, paused_by=text)
    BulkOperation.objects.create(
        action=text[:40], parameters={text: text}, reason=text, actor=text, total=1, error=text
    )
    line = json.dumps({"kind": text, "payload": {text: text}}) + "\n" + json.dumps({"kind": "http.request", text: text})
    upload = store_upload(line.encode(), project_id=letter.project_id, actor=text, file_name=text, name=text)
    client = signed_in("superuser")
    SavedFilter.objects.create(owner=User.objects.latest("pk"), screen="job", name=text[:60], query=f"kind={text}")
    operation = BulkOperation.objects.get()
    addresses = [
        "/admin/",
        *(
            reverse(f"admin:{screen}_changelist")
            for screen in (*PAGES, "jobs_pauseswitch", "jobs_bulkoperation", "audit_auditentry")
        ),
        reverse("admin:jobs_job_change", args=[letter.job_id]),
        reverse("admin:jobs_deadletter_change", args=[letter.pk]),
        reverse("admin:jobs_batch_change", args=[batch.pk]),
        reverse("admin:jobs_bulkoperation_change", args=[operation.pk]),
        reverse("admin:jobs_upload_changelist"),
        reverse("admin:jobs_upload_change", args=[upload.pk]),
        f"{reverse('admin:jobs_job_changelist')}?{urlencode({'kind': text})}",
        f"{reverse('admin:jobs_job_save_filter')}?{urlencode({'kind': text})}",
        f"{reverse('admin:jobs_job_all_cancel')}?{urlencode({'kind': text, 'service': text})}",
        f"{reverse('admin:jobs_pauseswitch_pause_work')}?{urlencode({'key': text, 'reason': text})}",
        reverse("admin:jobs_job_forget_filter", args=[SavedFilter.objects.get().pk]),
        reverse("admin:jobs_deadletter_groups"),
        reverse("admin:jobs_deadletter_change", args=[letter.pk]).replace("/change/", "/edit/"),
        reverse("admin:jobs_batch_change", args=[batch.pk]).replace("/change/", "/pause/"),
        reverse("admin:jobs_pauseswitch_change", args=[PauseSwitch.objects.get().pk]),
    ]
    for address in addresses:
        response = client.get(address)
        assert response.status_code == 200, address
        page = response.content.decode()
        assert not RAW.search(page), address
        assert 'href="javascript:' not in page, address
        assert "49" not in re.findall(r"\{\{|\b49\{", page), address


def test_secrets_are_masked_wherever_a_payload_or_message_is_shown():
    payload = {
        "headers": {"Authorization": f"Bearer {SECRET}", "Cookie": SECRET, "X-Api-Key": SECRET, "Accept": "*/*"},
        "url": f"https://u:{SECRET}@host/path?access_token={SECRET}&page=2",
        "nested": [{"client_secret": {"value": SECRET}}],
        "max_tokens": 100,
    }
    letter = make_dead_letter(
        payload=json.dumps(payload), error_message=f"refused token={SECRET}", attempts=[{"message": f"Bearer {SECRET}"}]
    )
    Job.objects.filter(pk=letter.job_id).update(
        result={"session_token": SECRET}, last_error_message=f"password={SECRET}", last_error_code="x"
    )
    trail.record(actor="user:1", action="pause", target="everything", after={}, moved=0, reason=f"token={SECRET}")
    client = signed_in("superuser")
    for address in (
        reverse("admin:audit_auditentry_changelist"),
        reverse("admin:audit_auditentry_change", args=[AuditEntry.objects.get(action="pause").pk]),
        reverse("admin:jobs_job_change", args=[letter.job_id]),
        reverse("admin:jobs_deadletter_change", args=[letter.pk]),
        reverse("admin:jobs_deadletter_change", args=[letter.pk]).replace("/change/", "/edit/"),
        reverse("admin:jobs_deadletter_groups"),
        reverse("admin:jobs_deadletter_changelist"),
    ):
        page = client.get(address).content.decode()
        assert SECRET not in page, address
    assert masked(payload)["max_tokens"] == 100
    figures = {"tokens": {"input_tokens": {"known": 100, "expected": 12.5, "reserved": None}}}
    assert masked(figures) == figures
    for secret in ({"tokens": {"id": 7, "of": "x"}}, {"tokens": [115, 101]}, {"token": {"bytes": [115]}}):
        assert str(MASK) in str(masked(secret))
    assert masked_text("page=2&token=abc") == f"page=2&token={MASK}"


@every_case("unit", ["x", "token", "token ", "a://b:", "Bearer ", "token=  ", "cookie-", '"api_key": "'], undone=True)
def test_masking_a_hostile_text_takes_time_in_proportion_to_its_length(unit):
    """Were an expression to try every start against every end, this would not come back for hours."""
    assert masked_text(unit * (1_000_000 // len(unit)))


def test_an_edited_payload_keeps_the_secrets_whose_mask_was_left():
    payload = {
        "method": "GET",
        "url": "http://127.0.0.1:9/?token=abc",
        "headers": {"Authorization": f"Bearer {SECRET}", "X": "1"},
    }
    letter = make_dead_letter(payload=json.dumps(payload))
    client = signed_in("operator")
    address = reverse("admin:jobs_deadletter_change", args=[letter.pk]).replace("/change/", "/edit/")
    edited = json.loads(client.get(address).context["form"].fields["payload"].initial)
    edited["headers"]["X"] = "2"
    assert client.post(address, {"confirmed": "yes", "payload": json.dumps(edited)}).status_code == 302
    letter.refresh_from_db()
    assert letter.requeued_as is not None
    assert letter.requeued_as.payload == {**payload, "headers": {"Authorization": f"Bearer {SECRET}", "X": "2"}}


def test_a_mask_is_filled_in_place_by_place():
    original = {"a": {"token": "1"}, "b": [{"token": "2"}], "c": "x"}
    edited = masked(original)
    assert unmasked(edited, original) == original
    assert unmasked({"new": MASK}, original) == {"new": MASK}
    assert unmasked({"c": f"see {MASK}"}, original) == {"c": f"see {MASK}"}


def test_an_edited_payload_that_the_kind_does_not_take_is_refused_with_the_field():
    letter = make_dead_letter()
    address = reverse("admin:jobs_deadletter_change", args=[letter.pk]).replace("/change/", "/edit/")
    client = signed_in("operator")
    for payload in ("no json", "[]", '{"method": "GET"}', '{"json": ' + "[" * 5000):
        response = client.post(address, {"confirmed": "yes", "payload": payload})
        assert response.status_code == 200
        assert "qo-error" in response.content.decode()
    letter.refresh_from_db()
    assert letter.resolution is None


def test_a_large_payload_is_cut_and_says_so():
    text, cut = pretty({"text": "x" * 30_000}, most=1000)
    assert len(text) == 1000
    assert cut > 29_000
    letter = make_dead_letter(payload=json.dumps({"text": "x" * 50_000}))
    page = signed_in("viewer").get(reverse("admin:jobs_job_change", args=[letter.job_id])).content.decode()
    assert "more characters are not shown" in page
    assert len(page) < 150_000


@every_case("state", sorted(JobState), undone=True)
def test_the_path_of_a_job_is_its_states_in_order(state):
    job = make_job(state=state)
    events = read_history(job, most=500).events
    path = path_of(job, events)
    assert path[0].state == "queued"
    assert path[-1].state == state
    assert path[-1].is_now is (state not in {"completed", "failed", "cancelled"})
    assert len(attempts_of(events)) == (state in {"dispatched", "in_progress", "completed", "failed"})
    page = signed_in("viewer").get(reverse("admin:jobs_job_change", args=[job.pk])).content.decode()
    assert state_badge(state) in page


def test_every_state_has_a_badge_that_says_it_in_words():
    for state in JobState:
        assert f"</span>{SHOWN[state].words}</span>" in state_badge(state)


def test_a_jobs_page_says_why_it_waits_and_what_is_related():
    letter = make_dead_letter(batch=make_batch())
    client = signed_in("operator")
    address = reverse("admin:jobs_job_change", args=[letter.job_id])
    response = client.post(address.replace("/change/", "/requeue/"), {"confirmed": "yes", "spread_seconds": "0"})
    newer = Job.objects.get(origin=letter.job_id)
    assert response.headers["Location"] == reverse("admin:jobs_job_change", args=[newer.pk])
    PauseSwitch.objects.create(scope="project", key="acme", reason="audit day")
    page = client.get(response.headers["Location"]).content.decode()
    assert "project acme is paused: audit day" in page
    assert str(letter.job_id) in page
    assert str(newer.pk) in client.get(address).content.decode()


def test_the_report_says_what_moved_and_what_was_left_alone():
    waiting, ended = make_job(), make_job(state=JobState.COMPLETED)
    chosen = {"action": "cancel_selected", "_selected_action": [str(waiting.pk), str(ended.pk)]}
    client = signed_in("operator")
    asked = client.post("/admin/jobs/job/", chosen).content.decode()
    assert "<strong>1</strong> will be cancelled, 1 left alone (ended before)." in asked
    response = client.post("/admin/jobs/job/", {**chosen, "confirmed": "yes", "reason": "x"}, follow=True)
    assert "1 cancelled, 1 left alone: ended before." in response.content.decode()


def test_what_a_resume_leaves_alone_by_its_page_it_does_leave_alone():
    """A pause of a window has the scope of one that a person set, and the platform's own cannot be lifted by hand."""
    window = MaintenanceWindow.objects.create(scope="service", key="sheets")
    of_window = PauseSwitch.objects.create(scope="service", key="sheets", window=window)
    of_person = PauseSwitch.objects.create(scope="service", key="sheets")
    refused, chosen = (PauseSwitch.objects.create(scope=scope, key="http") for scope in ("refused", "service"))
    form = {"action": "resume_selected", "_selected_action": [one.pk for one in (of_window, refused, chosen)]}
    client = signed_in("operator")
    page = client.post("/admin/jobs/pauseswitch/", form).content.decode()
    assert "<strong>1</strong> will be resumed, 2 left alone (set by the platform or by a window)." in page
    done = client.post("/admin/jobs/pauseswitch/", {**form, "confirmed": "yes"}, follow=True).content.decode()
    assert "1 resumed; 0 held jobs may run again. 2 left alone: set by the platform or by a window." in done
    client.post(f"/admin/jobs/pauseswitch/{of_window.pk}/resume/", {"confirmed": "yes"})
    assert set(PauseSwitch.objects.all()) == {of_window, of_person, refused}


def test_a_page_offers_only_what_can_do_something_to_its_row():
    client, now = signed_in("superuser"), timezone.now()
    switch, breaker = PauseSwitch.objects.create, ServiceBreaker.objects.create
    running, failed = make_batch(), make_batch()
    make_job(batch=running)
    make_dead_letter(batch=failed)
    cases = {
        "a person's pause": (switch(scope="service", key="sheets"), {"resume"}, {"try_now"}),
        "a refused model": (switch(scope="refused", key="http"), {"try_now"}, {"resume"}),
        "an open breaker": (breaker(service="a", project_id="acme", opened_at=now), {"close", "probe"}, set()),
        "a closed breaker": (breaker(service="b", project_id="acme"), set(), {"close", "probe"}),
        "an ended batch": (make_batch(finished_at=now), set(), {"pause", "resume", "cancel", "priority"}),
        "a batch that runs": (running, {"pause", "cancel", "priority"}, {"resume", "go-on", "retry-failed"}),
        "a batch that failed": (failed, {"retry-failed"}, {"go-on", "resume"}),
        "an ended job": (make_job(state=JobState.COMPLETED), {"again", "with-changes"}, {"cancel", "run-now"}),
        "a waiting job": (make_job(), {"cancel", "run-now"}, {"again", "with-changes", "requeue", "reset"}),
        "a letter": (make_dead_letter(), {"requeue", "discard", "edit", "with-changes"}, set()),
        "a discarded letter": (make_dead_letter(resolution="discarded"), set(), {"requeue", "discard", "with-changes"}),
    }
    offered = {}
    for name, (row, there, missing) in cases.items():
        path = f"/admin/{row._meta.app_label}/{row._meta.model_name}/{row.pk}/"
        page = client.get(f"{path}change/").content.decode()
        offered[name] = {verb for verb in there | missing if f'href="{path}{verb}' in page}
    assert offered == {name: there for name, (_, there, _) in cases.items()}


def test_an_action_takes_the_chosen_rows_only_even_when_all_of_the_table_are_asked_for():
    chosen, other = make_job(), make_job()
    form = {"action": "cancel_selected", "_selected_action": [str(chosen.pk)], "select_across": "1"}
    signed_in("operator").post("/admin/jobs/job/", {**form, "confirmed": "yes", "reason": "x"})
    states = {job.pk: job.status for job in Job.objects.all()}
    assert states == {chosen.pk: JobState.CANCELLED, other.pk: JobState.QUEUED}


def test_requeueing_all_that_match_counts_first_and_runs_in_the_background():
    make_dead_letters(3, fingerprint="a" * 32)
    make_dead_letters(2, fingerprint="b" * 32)
    client = signed_in("operator")
    address = f"{reverse('admin:jobs_deadletter_all_requeue')}?fingerprint={'a' * 32}"
    assert "<strong>3</strong> will be requeued" in client.get(address).content.decode()
    response = client.post(address, {"priority": "low", "spread_seconds": "10", "note": "again"})
    operation = BulkOperation.objects.get()
    assert response.headers["Location"] == reverse("admin:jobs_bulkoperation_change", args=[operation.pk])
    assert (operation.total, operation.parameters["spread_seconds"]) == (3, 600.0)
    assert 'http-equiv="refresh"' in client.get(response.headers["Location"]).content.decode()
    while bulk_run.run_bulk_chunk(operation.pk):
        pass
    assert "3 of 3" in client.get(response.headers["Location"]).content.decode()
    assert DeadLetter.objects.open().count() == 2


def test_a_filter_that_means_nothing_acts_on_nothing():
    make_dead_letter()
    client = signed_in("operator")
    response = client.get(f"{reverse('admin:jobs_deadletter_all_requeue')}?batch_id=nonsense", follow=True)
    assert "not valid" in response.content.decode()
    assert not BulkOperation.objects.exists()


def test_dead_letters_are_exported_as_csv_and_ndjson():
    make_dead_letters(2, error_message="=1+1")
    client = signed_in("operator")
    lines = b"".join(client.get(reverse("admin:jobs_deadletter_ndjson"))).decode().splitlines()
    assert [json.loads(line)["error_message"] for line in lines] == ["=1+1", "=1+1"]
    response = client.get(reverse("admin:jobs_deadletter_csv"))
    assert "attachment" in response.headers["Content-Disposition"]
    assert "'=1+1" in b"".join(response).decode()


def test_a_key_is_shown_once_and_never_stored():
    make_project()
    client = signed_in("administrator")
    form = {"project": "acme", "name": "nightly", "scopes": ["read", "submit"], "expires_at_0": "", "expires_at_1": ""}
    response = client.post(reverse("admin:tenancy_producerkey_add"), form)
    [secret] = re.findall(r"qo_[\w-]{40,}", response.content.decode())
    assert "no-store" in response.headers["Cache-Control"]
    key = ProducerKey.objects.get()
    assert key.digest == digest_of(secret)
    assert key.scopes == ["read", "submit"]
    for address in (
        reverse("admin:tenancy_producerkey_changelist"),
        reverse("admin:tenancy_producerkey_change", args=[key.pk]),
        "/admin/audit/auditentry/",
    ):
        page = client.get(address).content.decode()
        assert secret not in page
        assert key.digest not in page
    entry = AuditEntry.objects.get(action="issue_key")
    assert secret not in json.dumps(entry.after)


def test_a_webhooks_secret_is_generated_shown_once_and_not_editable():
    make_project()
    client = signed_in("administrator")
    response = client.post(
        reverse("admin:jobs_webhook_add"),
        {
            "project": "acme",
            "url": "https://example.org/hook",
            "hears_batches": "on",
            "most_jobs": "100",
            "secret": "mine",
        },
    )
    webhook = Webhook.objects.get()
    secret = open_signing_secret(webhook)
    assert secret.startswith("whsec_")
    assert secret in response.content.decode()
    page = client.get(reverse("admin:jobs_webhook_change", args=[webhook.pk])).content.decode()
    assert secret not in page
    assert secret not in json.dumps(list(AuditEntry.objects.values("before", "after")))


RULE = {
    "base": "10",
    "cap": "99",
    "first_after_seconds": "900",
    "first_score": "20",
    "step_seconds": "3600",
    "promote_after_seconds": "",
    "promote_to": "",
}


@pytest.mark.parametrize(
    "fault",
    [
        {"cap": "5"},
        {"base": "100"},
        {"base": "1"},
        {"first_score": "5"},
        {"first_score": "100"},
        {"first_score": ""},
        {"promote_after_seconds": "60"},
        {"promote_after_seconds": "60", "promote_to": "normal"},
    ],
    ids=str,
)
def test_an_aging_rule_that_makes_no_sense_is_refused(fault):
    client = signed_in("administrator")
    address = reverse("admin:jobs_agingrule_change", args=["normal"])
    before = list(AgingRule.objects.values())
    assert client.post(address, {**RULE, **fault}).status_code == 200
    assert list(AgingRule.objects.values()) == before


def test_a_changed_rule_is_audited_and_shows_its_scores():
    client = signed_in("administrator")
    address = reverse("admin:jobs_agingrule_change", args=["normal"])
    assert client.post(address, {**RULE, "first_score": "30"}).status_code == 302
    entry = AuditEntry.objects.get(action="change_agingrule")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["first_score"], entry.after["first_score"]) == (20, 30)
    assert ["15 min", [100, 30, 1]] in [
        [row["age"], row["scores"]] for row in client.get(address).context["score_rows"]
    ]


def test_a_retry_policys_longest_delay_is_not_shorter_than_its_first():
    client = signed_in("administrator")
    address = reverse("admin:jobs_retrypolicy_change", args=["moderate"])
    form = {
        "initial_seconds": "90",
        "multiplier": "3",
        "max_delay_seconds": "60",
        "max_retries": "5",
        "jitter": "full",
        "window_seconds": "",
    }
    assert client.post(address, form).status_code == 200
    assert client.post(address, {**form, "initial_seconds": "2"}).status_code == 302
    assert RetryPolicy.objects.get(pk="moderate").initial_seconds == 2
    for name in ("multiplier", "max_delay_seconds", "window_seconds"):
        refused = client.post(address, {**form, "initial_seconds": "2", name: "1e308"})
        assert "At most" in refused.content.decode()


def test_a_schedule_may_name_only_a_function_of_the_list():
    client = signed_in("superuser")
    form = {
        "name": "x",
        "schedule_type": "I",
        "minutes": "5",
        "repeats": "-1",
        "next_run_0": "2036-01-01",
        "next_run_1": "00:00:00",
    }
    schedules = apps.get_model("django_q", "Schedule").objects.filter(name="x")
    address = reverse("admin:django_q_schedule_add")
    for function in ("os.system", "jobs.cluster.run_operation", ""):
        assert client.post(address, {**form, "func": function}).status_code == 200
        assert not schedules.exists()
    assert client.post(address, {**form, "func": "jobs.cluster.keep_partitions", "args": "'x'"}).status_code == 302
    assert not schedules.get().args


def test_deleting_a_scheduled_task_is_audited():
    schedule = apps.get_model("django_q", "Schedule").objects.create(name="x", func="jobs.cluster.keep_partitions")
    client, number = signed_in("superuser"), schedule.pk
    answer = client.post(reverse("admin:django_q_schedule_delete", args=[number]), {"post": "yes"})
    assert answer.status_code == 302
    entry = AuditEntry.objects.get(action="delete_schedule")
    assert entry.target == f"Scheduled task {number}"
    assert entry.before is not None
    assert (entry.before["name"], entry.after) == ("x", None)


@pytest.mark.django_db
def test_work_is_paused_and_resumed_from_the_list_of_pauses():
    job = make_job()
    client = signed_in("operator")
    address = reverse("admin:jobs_pauseswitch_changelist") + "pause/"
    unknown = client.post(address, {"scope": "project", "key": "nowhere", "reason": "x"})
    assert "There is no project" in unknown.content.decode()
    asked = {"scope": "kind", "key": job.kind, "reason": "storm"}
    assert "This field is required" in client.post(address, {**asked, "reason": " "}).content.decode()
    assert "1 waiting jobs will not start" in client.post(address, asked).content.decode()
    changed = client.post(address, {**asked, "scope": "service", "key": "htpp", "counted": f"kind {job.kind}"})
    assert "No job has ever called &#x27;htpp&#x27;." in changed.content.decode()
    assert not PauseSwitch.objects.exists()
    response = client.post(address, {**asked, "counted": f"kind {job.kind}"}, follow=True)
    assert "Paused; 1 job waits." in response.content.decode()
    switch = PauseSwitch.objects.get()
    resume = reverse("admin:jobs_pauseswitch_change", args=[switch.pk]).replace("/change/", "/resume/")
    answer = client.post(resume, {"confirmed": "yes"})
    assert (answer.status_code, answer.headers["Location"]) == (
        302,
        "/admin/jobs/pauseswitch/",
    )  # its page went with it
    job.refresh_from_db()
    assert not job.held
    assert not PauseSwitch.objects.exists()


def test_what_is_paused_is_resumed_in_its_row_by_those_who_may():
    batches = [make_batch(), make_batch(paused=True), make_batch(finished_at="2026-01-01T00:00Z")]
    switch = PauseSwitch.objects.create(scope="kind", key="http.request", paused_by="user:1")
    own = PauseSwitch.objects.create(scope="unknown", key="nobody.knows", paused_by="system")
    lists = {name: reverse(f"admin:jobs_{name}_changelist") for name in ("batch", "pauseswitch")}
    operator = {name: signed_in("operator").get(address).content.decode() for name, address in lists.items()}
    viewer = "".join(signed_in("viewer").get(address).content.decode() for address in lists.values())
    links = {
        "batch": [f"/admin/jobs/batch/{batches[0].pk}/pause/", f"/admin/jobs/batch/{batches[1].pk}/resume/"],
        "pauseswitch": [f"/admin/jobs/pauseswitch/{switch.pk}/resume/"],
    }
    for name, addresses in links.items():
        for address in addresses:
            assert f'href="{address}"' in operator[name]
            assert address not in viewer
    assert f"/admin/jobs/batch/{batches[2].pk}/pause/" not in operator["batch"]
    assert f"/admin/jobs/pauseswitch/{own.pk}/resume/" not in operator["pauseswitch"]


@every_case(
    ("address", "title"),
    [
        ("/admin/", "Overview"),
        ("/admin/jobs/batch/", "Batches"),
        ("/admin/ratelimits/alertsilence/", "Alerts"),
        ("/admin/jobs/webhookdelivery/", "Projects"),
    ],
    undone=True,
)
def test_the_sidebar_marks_the_screen_that_is_shown_and_no_other(address, title):
    page = signed_in("viewer").get(address).content.decode()
    marked = re.findall(r'<a href="[^"]*" class="[^"]* active">(.*?)</a>', page, re.DOTALL)
    assert [re.sub(r"<[^>]*>", " ", one).split()[-1] for one in marked] == [title]


def sidebar(role: str) -> list[str]:
    """The addresses of its entries."""
    page = signed_in(role).get("/admin/").content.decode()
    bar = page.partition('id="nav-sidebar-apps"')[2].partition('id="main"')[0]
    return re.findall(r'<li>\s*<a href="([^"]*)"', bar)


def test_the_sidebar_fits_one_glance_and_leads_to_every_screen():
    assert len(sidebar("superuser")) <= 15
    client = signed_in("superuser")
    reached: set[str] = set()
    for address in sidebar("superuser"):
        page = client.get(address).content.decode()
        tabs = page.partition('id="tabs-items"')[2].partition("</nav>")[0]
        reached |= {address, *re.findall(r'<a href="([^"]*)"', tabs)}
    screens = {
        reverse(f"admin:{model._meta.label_lower.replace('.', '_')}_changelist")
        for model, screen in admin.site._registry.items()
        if screen.has_module_permission(client.get("/admin/").wsgi_request)
    }
    assert len(screens) > 25
    assert screens - reached == set(), "screens that no entry or tab leads to"


def test_an_entry_leads_to_the_first_screen_that_the_person_may_see():
    addresses = sidebar("viewer")
    client = signed_in("viewer")
    assert addresses
    assert {address: client.get(address).status_code for address in addresses} == dict.fromkeys(addresses, 200)


def test_the_front_page_says_what_needs_a_person():
    make_job()
    make_dead_letter()
    page = signed_in("viewer").get("/admin/").content.decode()
    assert "No executor is alive" in page
    assert "acme" in page
    assert "qo-verdict" not in signed_in(None).get("/admin/").content.decode()
    Executor.objects.create(host="h", pid=1, process_started_at=0, cluster_pid=1, slots=1)
    assert "Flowing. 1 dead letter needs a person." in signed_in("viewer").get("/admin/").content.decode()
    make_jobs(2, state=JobState.RATE_LIMITED)
    open_alert(QuotaAlert.Kind.EXCEEDED, "*", severity=QuotaAlert.Severity.CRITICAL, message="refused", figures={})
    page = signed_in("viewer").get("/admin/").content.decode()
    assert "A critical alert that nobody looks after." in page
    assert "1 critical, nobody on it" in page
    PauseSwitch.objects.create(scope="service", key="sheets", paused_by="user:1")
    QuotaAlert.objects.update(acknowledged_at=Now())
    assert "Paused: service sheets." in signed_in("viewer").get("/admin/").content.decode()


@pytest.mark.parametrize("screen", PAGES)
@pytest.mark.parametrize("identifier", ["nonsense", "00000000-0000-7000-8000-000000000000", "_5F"])
def test_a_page_of_nothing_leads_back_and_its_verbs_are_not_found(screen, identifier):
    client = signed_in("superuser")
    address = reverse(f"admin:{screen}_change", args=[identifier])
    assert client.get(address).status_code == 302
    assert (
        client.get(address.replace("/change/", "/requeue/" if screen != "jobs_batch" else "/cancel/")).status_code
        == 404
    )


def test_a_project_is_paused_from_the_list_of_projects():
    make_job()
    client = signed_in("administrator")
    listed = client.get(reverse("admin:tenancy_project_changelist")).content.decode()
    address = f"{reverse('admin:jobs_pauseswitch_pause_work')}?scope=project&amp;key=acme"
    assert address in listed
    assert 'value="acme"' in client.get(address.replace("&amp;", "&")).content.decode()


@every_case("scope", ["global", "project", "service", "kind", "batch"], undone=True)
def test_a_pause_says_how_many_jobs_it_keeps_from_starting(scope):
    batch = make_batch()
    job = make_jobs(3, batch=batch)[0]
    make_jobs(2, project="globex", kind="other.kind", service="other")
    make_jobs(4, state=JobState.COMPLETED, batch=batch)
    key = {"project": "acme", "service": job.service, "kind": job.kind, "batch": str(batch.pk)}.get(scope, "")
    address = reverse("admin:jobs_pauseswitch_pause_work")
    page = signed_in("operator").post(address, {"scope": scope, "key": key, "reason": "storm"}).content.decode()
    assert f"{5 if scope == 'global' else 3} waiting jobs will not start" in page


def test_a_batch_draws_when_its_jobs_ended():
    batch = make_batch()
    address = reverse("admin:jobs_batch_change", args=[batch.pk])
    client = signed_in("viewer")
    assert "Nothing to draw" in client.get(address).content.decode()
    first, _ = make_jobs(2, batch=batch, state=JobState.COMPLETED)
    make_jobs(1, batch=batch, state=JobState.FAILED)
    Job.objects.filter(pk=first.pk).update(finished_at=F("finished_at") - timedelta(minutes=10))
    pace = pace_of(Job.objects.filter(batch_id=batch.pk))
    assert pace is not None
    assert (pace.ended[0], pace.ended[-1]) == ({"completed": 1}, {"completed": 1, "failed": 1})
    assert sum(sum(bucket.values()) for bucket in pace.ended) == 3
    assert client.get(address).content.decode().count("<rect") == 3


def test_changes_of_people_and_roles_are_audited_with_what_they_may_do():
    client = signed_in("superuser")
    viewer = Group.objects.get(name="viewer")
    person = User.objects.create_user("anna", password="a long enough password", is_staff=True)
    form = {"username": "anna", "is_active": "on", "is_staff": "on", "groups": [viewer.pk], "email": "anna@example.org",
            "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}  # fmt: skip
    assert client.post(reverse("admin:auth_user_change", args=[person.pk]), form).status_code == 302
    entry = AuditEntry.objects.get(action="change_user")
    assert entry.target == f"user {person.pk}"
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["groups"], entry.after["groups"]) == ([], ["viewer"])
    assert (entry.before["email"], entry.after["email"]) == ("", "anna@example.org")
    assert "password" not in entry.after
    seen = Permission.objects.get(codename="view_job")
    group = {"name": "viewer", "permissions": [seen.pk]}
    assert client.post(reverse("admin:auth_group_change", args=[viewer.pk]), group).status_code == 302
    entry = AuditEntry.objects.latest("id")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.action, entry.after["permissions"]) == ("change_group", ["jobs.view_job"])
    assert len(entry.before["permissions"]) > 10
    deleted = client.post(reverse("admin:auth_user_delete", args=[person.pk]), {"post": "yes"})
    assert deleted.status_code == 302
    assert AuditEntry.objects.latest("id").action == "delete_user"


def test_an_export_is_audited():
    make_dead_letter()
    list(signed_in("operator").get(f"{reverse('admin:jobs_deadletter_csv')}?kind=http.request"))
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.after) == ("export_dead_letters", {"filter": {"kind": "http.request"}})
