"""What an assistant changes: nothing without a confirmation, and with one exactly what was previewed."""

from __future__ import annotations

import pytest
from django.core import signing

from jobs.models import BulkOperation, Job, PauseSwitch
from jobs.services.operate.pauses import pause_scope
from queueops.assistant import confirmations
from ratelimits.alerts.alerts import open_alert
from ratelimits.limits import catalogue
from ratelimits.models import Limit, LimitOverride, QuotaAlert
from tests.factories import make_batch, make_dead_letters, make_jobs
from tests.security.world import everything
from tests.support.assistants import Answered, assistant_of, confirm, made, previewed

pytestmark = pytest.mark.django_db

PAUSE = {"scope": "project", "reason": "the provider asked for it"}


def test_dead_letters_of_one_cause_are_found_and_requeued_after_confirming():
    make_dead_letters(3, error_code="http_404", fingerprint="a" * 32)
    make_dead_letters(1, error_code="timeout", fingerprint="b" * 32)
    assistant = assistant_of()
    cause = assistant.call("causes_of_dead_letters").data[0]
    assert (cause["open"], cause["error_code"]) == (3, "http_404")
    shown = made(assistant, "preview_requeue", fingerprint=cause["fingerprint"], reason="the table is there again")
    assert "3 open dead letters" in shown.says
    begun = BulkOperation.objects.get()
    assert (begun.action, begun.total) == ("requeue_dead_letters", 3)
    assert begun.parameters["filter"]["project_id"] == "acme"


def test_a_forgotten_pause_is_found_and_lifted_after_confirming():
    make_jobs(4)
    pause_scope("project", "acme", actor="key:test", reason="a release")
    assistant = assistant_of()
    found = assistant.call("what_holds_the_project").data
    assert [one["reason"] for one in found["pauses"]] == ["a release"]
    made(assistant, "preview_resume", scope="project", reason="the release is out")
    assert not PauseSwitch.objects.exists()


def test_a_job_is_found_by_its_short_id_and_its_batch_paused_and_cancelled():
    batch = make_batch(name="nightly")
    job = make_jobs(5, batch=batch)[0]
    assistant = assistant_of()
    found = assistant.call("why_does_a_job_wait", job=str(job.pk)[-8:]).data
    assert found["batch"] == str(batch.pk)
    made(assistant, "preview_pause", scope="batch", key="nightly", reason="wrong prompt")
    assert Job.objects.filter(held=True).count() == 5
    shown = made(assistant, "preview_cancel_batch", batch="nightly", reason="wrong prompt")
    assert "5 jobs" in shown.says
    assert BulkOperation.objects.get().action == "cancel_jobs"


def test_a_cap_that_is_twice_too_high_is_lowered_for_the_project_alone():
    limit = Limit.objects.create(name="writes", service="sheets", capacity=600, window_seconds=60)
    catalogue.forget()
    assistant = assistant_of()
    made(assistant, "preview_cap", limit="writes", capacity=300.0, reason="the provider allows half")
    assert LimitOverride.objects.get(limit=limit).key == "project:acme"
    foreign = assistant.call("preview_cap", limit="writes", capacity=1.0, key="project:globex", reason="spite")
    spite = {"limit": "writes", "capacity": 1.0, "key": "project:globex", "reason": "spite"}
    assert confirm(assistant, "preview_cap", foreign, **spite).code == "invalid_input"
    assert LimitOverride.objects.count() == 1
    catalogue.forget()


def test_an_alert_of_the_project_alone_is_acknowledged():
    own = open_alert("oldest_ready", "acme", severity="warning", message="late", figures={})
    many = open_alert("outage", "s", severity="critical", message="out", figures={"projects": ["acme", "globex"]})
    assert own is not None
    assert many is not None
    assistant = assistant_of()
    assert "# " in assistant.call("runbook", alert=own.pk).data["runbook"]
    made(assistant, "preview_acknowledge", alert=own.pk, reason="on it")
    assert QuotaAlert.objects.get(pk=own.pk).acknowledged_at is not None
    assert assistant.call("preview_acknowledge", alert=many.pk, reason="on it").code == "shared_alert"


def test_a_pause_that_holds_other_projects_is_not_a_keys_to_set():
    answer = assistant_of().call("preview_pause", scope="kind", key="http.request", reason="x")
    assert answer.code == "shared_pause"


@pytest.mark.proves("S2")
def test_a_confirmation_is_good_once_for_one_key_and_for_what_was_shown(monkeypatch: pytest.MonkeyPatch):
    make_jobs(2)
    assistant, other, spy = assistant_of(), assistant_of(), assistant_of("globex")
    reader = assistant_of(scopes=["read"])
    for one in (assistant, other, spy, reader):
        one.call("executors")
    shown = previewed(assistant, "preview_pause", **PAUSE)
    before, made_up = everything(), Answered("", {"confirmation": "made up"}, {})
    for one, code, given, arguments in (
        (other, "bad_confirmation", shown, PAUSE),
        (spy, "bad_confirmation", shown, PAUSE),
        (reader, "missing_scope", shown, PAUSE),
        (assistant, "bad_confirmation", shown, {**PAUSE, "reason": "another"}),
        (assistant, "bad_confirmation", made_up, PAUSE),
    ):
        assert confirm(one, "preview_pause", given, **arguments).code == code
        assert everything() == before
    token = shown.data["confirmation"]
    wrong_tool = assistant.call("confirm", change="preview_resume", arguments=PAUSE, confirmation=token)
    assert wrong_tool.code == "bad_confirmation"
    with monkeypatch.context() as later:
        later.setattr(confirmations, "CONFIRMATION_SECONDS", -1)
        assert confirm(assistant, "preview_pause", shown, **PAUSE).code == "confirmation_expired"
    assert everything() == before
    assert confirm(assistant, "preview_pause", shown, **PAUSE).error == {}
    assert PauseSwitch.objects.count() == 1
    paused = everything()
    assert confirm(assistant, "preview_pause", shown, **PAUSE).code == "bad_confirmation"  # it is paused now
    assert everything() == paused
    PauseSwitch.objects.all().delete()
    resumed = everything()
    assert confirm(assistant, "preview_pause", shown, **PAUSE).code == "confirmation_used"
    assert everything() == resumed


def test_what_has_changed_since_the_preview_is_not_touched():
    make_dead_letters(2)
    assistant, wanted = assistant_of(), {"fingerprint": "f" * 32, "reason": "again"}
    shown = previewed(assistant, "preview_requeue", **wanted)
    make_dead_letters(1)
    assert confirm(assistant, "preview_requeue", shown, **wanted).code == "bad_confirmation"
    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize("tool", ["preview_requeue", "preview_pause", "preview_resume", "preview_acknowledge"])
def test_a_change_needs_the_scope_of_the_address_that_makes_it(tool: str):
    assert assistant_of(scopes=["read", "submit"]).call(tool).error["details"]["needed"] == "operate"


def test_confirm_makes_nothing_but_previewed_changes():
    token = signing.dumps(["x", "y"], salt=confirmations.SALT)
    assistant = assistant_of()
    assert assistant.call("confirm", change="limits", arguments={}, confirmation=token).code == "not_found"
    assert assistant.call("confirm", change="nothing", arguments={}, confirmation=token).code == "unknown_tool"
    assert assistant.call("confirm", change="preview_pause", arguments=PAUSE).code == "invalid_input"
