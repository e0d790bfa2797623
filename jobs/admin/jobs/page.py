"""The content of one job's page, and its whole result as a file, for a result that is too large for the page."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.admin.batches.links import batch_link, batch_links
from jobs.admin.filters import tags_shown
from jobs.admin.money import money_shown, prices_shown
from jobs.admin.states import state_badge
from jobs.door.batches import custom_id_of
from jobs.features.dependencies.takes import shown_takes
from jobs.features.forecast.delivery import way_prices
from jobs.features.outages.outages import out_keys, shown_state
from jobs.features.results.read import ResultMissing, among_few, whole_result
from jobs.features.results.reference import stored_in
from jobs.lanes import pool_of_lane
from jobs.models import DeadLetter, Dependency, Job, JobEvent, ProviderBatchLine, Tag
from jobs.services.explain.history import read_history
from jobs.services.explain.snapshots import job_snapshot
from jobs.services.explain.waiting import Code, Waiting
from jobs.states import RUNNING, TERMINAL, WAITING, JobState
from queueops.core.stores.store import StoreError
from queueops.core.values.masking import masked, masked_text, pretty
from queueops.screens import formatting
from queueops.tenancy.people import name_of
from queueops.tenancy.user_labels import users_shown
from ratelimits.money.reports import spent_on_jobs

from .timeline import MAX_EVENTS_SHOWN, attempts_of, happenings_of, path_of

MAX_RELATED = 50
GOES = {
    "batch": "by a batch of its provider",
    "live": "live, though it was to go by a batch of its provider",
}
WENT_ON = {
    "rate_limited": "it waited too long for a limit",
    "unavailable": "what it called did not answer",
    "context_too_long": "its input was too long for the model",
}


def page_of(job: Job) -> dict[str, Any]:
    history = read_history(job, most=MAX_EVENTS_SHOWN)
    events = history.events
    snapshot = job_snapshot(job)
    payload, payload_cut = pretty(job.payload)
    stored = stored_in(job.result)
    result, result_cut = pretty(None if stored else job.result)
    return {
        "title": f"Job …{str(job.pk)[-8:]}",
        "subtitle": job.kind,
        "job": job,
        "snapshot": snapshot,
        "badge": state_badge(shown_state(job, out_keys())),
        "waiting_for": masked_text(snapshot.waiting_for or ""),
        "waiting": _waiting(snapshot.waiting),
        "is_running": job.status in RUNNING,
        "has_ended": job.status in TERMINAL,
        "progress_bar": formatting.bar(job.progress),
        "last_error": masked_text(job.last_error_message),
        "path": path_of(job, events),
        "happenings": happenings_of(events),
        "pruned": history.pruned,
        "more_events": len(events) == MAX_EVENTS_SHOWN,
        "attempts": attempts_of(events),
        "payload": payload,
        "payload_cut": payload_cut,
        "result": result if job.result is not None and not stored else "",
        "stored": stored and {"size": filesizeformat(stored.bytes), "name": stored.name},
        "result_cut": result_cut,
        "facts": _facts(job),
        "times": _times(job),
        "related": _related(job),
    }


# Tone (of admin.css), sign and short name of the things that a job may wait for.
SIGNS: dict[Code, tuple[str, str, str]] = {
    "after": ("grey", "account_tree", "after others"),
    "paused": ("amber", "pause", "paused"),
    "budget": ("amber", "savings", "budget"),
    "outage": ("red", "cloud_off", "outage"),
    "scheduled": ("grey", "schedule", "scheduled"),
    "retry_backoff": ("amber", "replay", "retry"),
    "limit": ("amber", "speed", "limit"),
    "cooled_down": ("amber", "ac_unit", "cooled down"),
    "turn": ("grey", "format_list_numbered", "turn"),
    "slots": ("grey", "group_work", "slots"),
    "pool": ("red", "group_work", "pool"),
    "credentials": ("red", "key_off", "credentials"),
}


def _waiting(waiting: Waiting | None) -> dict[str, Any] | None:
    """The section on why a job waits; None: nothing holds the job."""
    if waiting is None or not waiting.reasons:
        return None
    forecast = waiting.forecast
    return {
        "figures": _waiting_figures(waiting),
        "forecast": forecast and forecast.basis,
        "reasons": [
            {
                "badge": formatting.badge(*SIGNS[reason.code]),
                "text": masked_text(reason.text) + (f" (by {name_of(reason.by)})" if reason.by else ""),
                "key": reason.key,
                "needed": _amount(reason.needed),
                "available": _amount(reason.available),
                "capacity": _amount(reason.capacity),
                "ends": formatting.ahead(reason.free_at),
            }
            for reason in waiting.reasons
        ],
    }


def _waiting_figures(waiting: Waiting) -> list[tuple[str, Any]]:
    figures: list[tuple[str, Any]] = []
    if waiting.forecast is not None:
        figures.append(("Should start", formatting.ago(waiting.forecast.starts_at)))
    if waiting.position is not None:
        figures.append(("Position in its lane", waiting.place))
        ahead = [f"{count:,} {tier}" for tier, count in waiting.position.by_class.items() if count]
        figures.append(("Ahead, by class reached", ", ".join(ahead) or "nobody"))
    return figures


def _amount(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.0f}"


def _facts(job: Job) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = [
        ("Id", job.pk),
        ("Project", formatting.link("tenancy_project", job.project_id, job.project_id)),
        ("User", users_shown(job.project_id, [job.user_id])[job.user_id] if job.user_id else None),
        ("Tags", tags_shown("jobs_job", Tag.objects.of([job.pk]).get(job.pk, ()))),
        (
            "Kind",
            format_html(
                '<a class="qo-link" href="{}">{}</a>', reverse("admin:jobs_job_kind", args=[job.kind]), job.kind
            ),
        ),
        ("Service", f"{job.service}, {job.call_type}"),
        ("Model", job.model),
        ("Credential", _credential(job)),
        ("Way", _fallback(job)),
        ("Cost", "1 unit" if job.cost == 1 else f"{job.cost:,} units"),
        ("Money", money_shown(spent_on_jobs([job.pk]).get(job.pk))),
        ("Price of both ways", prices_shown(way_prices(job))),
        ("Priority", job.priority),
        ("Goes", GOES.get(job.via or "")),
        ("Retry policy", job.retry_policy_id or "the handler's"),
        ("Retries", job.retry_count),
        ("Crashes", job.crash_count),
        (
            "Deferrals",
            f"{job.deferral_count} ({formatting.duration(job.deferred_seconds)})" if job.deferral_count else 0,
        ),
        ("Idempotency key", job.idempotency_key),
        ("Custom id", custom_id_of(job) or None),
        ("Unique key", job.given_unique_key),
        ("Effect key", job.effect_key),
        ("Executor", job.executor),
        ("Fencing token", job.fencing_token or None),
    ]
    return [(label, value) for label, value in facts if value is not None]


def _fallback(job: Job) -> str | None:
    """Say with which fallback of its payload the job went on, and why; None: it has not used a fallback."""
    if not job.fallback_step:
        return None
    return f"fallback {job.fallback_step}: {WENT_ON.get(job.fallback_reason, job.fallback_reason)}"


def _credential(job: Job) -> str | None:
    """The credential that the job names; for a pool also the member that its last claim chose."""
    pool = pool_of_lane(job.lane)
    if not pool:
        return job.credential
    claims = JobEvent.objects.filter(job_id=job.pk, data__has_key="credential").order_by("-id")
    last = claims.values_list("data__credential", flat=True).first()
    return f"pool {pool}, last with {last}" if last else f"pool {pool}"


def _times(job: Job) -> list[tuple[str, Any]]:
    times = (
        ("Created", job.created_at),
        ("Age counts from", job.eligible_since if job.status in WAITING else None),
        # A parked job's scheduled_at is only a forecast, made when it was parked; "What it waits for" has a newer one.
        ("Goes live", job.scheduled_at if job.via == "batch" and job.status in WAITING else None),
        (
            "Scheduled for",
            None if job.via == "batch" or (job.status == JobState.RATE_LIMITED and job.lane) else job.scheduled_at,
        ),
        ("Put off until at most", job.debounce_until if job.status in WAITING else None),
        ("Wanted by", job.complete_by),
        ("Expires", job.expires_at),
        ("First attempt", job.first_attempt_at),
        ("Started", job.started_at),
        ("Lease until", job.lease_expires_at),
        ("Finished", job.finished_at),
    )
    return [(label, formatting.ago(moment)) for label, moment in times if moment is not None]


def _related(job: Job) -> list[tuple[str, SafeString]]:
    related: list[tuple[str, SafeString]] = []
    if job.batch_id:
        related.append(("Batch", batch_link(job.batch_id)))
    if job.ended_batch:
        related.append(("Callback of", batch_link(UUID(job.ended_batch["batch"]))))
    if job.origin_id:
        related.append(("Requeued from", formatting.link("jobs_job", job.origin_id)))
    requeues: list[UUID] = list(Job.objects.filter(origin_id=job.pk).order_by().ids()[:MAX_RELATED])
    related += [("Requeued as", formatting.link("jobs_job", newer)) for newer in sorted(requeues)]
    waits = list(Dependency.objects.filter(owner_id=job.pk).order_by("on_id")[:MAX_RELATED])
    others = list(Dependency.objects.filter(on_id=job.pk).order_by("owner_id")[:MAX_RELATED])
    batches = batch_links(
        [one.on_id for one in waits if one.on_batch] + [one.owner_id for one in others if one.of_batch]
    )
    related += [("Waits for", batches.get(one.on_id) or formatting.link("jobs_job", one.on_id)) for one in waits]
    related += [("Takes", _taken(one)) for one in shown_takes(job.takes)[:MAX_RELATED]]
    related += [
        ("Waited for by", batches.get(one.owner_id) or formatting.link("jobs_job", one.owner_id)) for one in others
    ]
    related += _provider_batches(job)
    letter = DeadLetter.objects.filter(job_id=job.pk).only("pk", "resolution").first()
    if letter is not None:
        words = f"{letter.resolution or 'open'}: see why and requeue"
        related.append(("Dead letter", formatting.link("jobs_deadletter", letter.pk, words)))
    return related


def _taken(take: dict[str, str]) -> SafeString:
    source = formatting.link("jobs_job", UUID(take["job"]))
    return format_html("{}: {} of {}", take["place"], take["path"] or "all", source)


def _provider_batches(job: Job) -> list[tuple[str, SafeString]]:
    """The providers' batches that the job was a line of, the newest first."""
    if job.via is None:
        return []
    lines = ProviderBatchLine.objects.filter(job_id=job.pk).select_related("provider_batch").order_by("-pk")
    return [
        (
            "Provider batch",
            formatting.link(
                "jobs_providerbatch",
                line.provider_batch_id,
                f"{line.provider_batch}, line {line.number}: {line.get_state_display().lower()}",
            ),
        )
        for line in lines[:MAX_RELATED]
    ]


def result_file(screen: Any, request: HttpRequest, pk: UUID) -> HttpResponse:
    """Answer with a job's whole result as a file. Secrets are masked, as on the page."""
    job = Job.objects.filter(pk=pk).only("id", "project_id", "status", "result").first()
    if not screen.has_view_permission(request, job):
        raise PermissionDenied
    if job is None or job.result is None:
        raise Http404
    try:
        with among_few():
            result = whole_result(job)
    except (ResultMissing, StoreError) as error:
        messages.error(request, error.message)
        return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[pk]))
    return HttpResponse(
        json.dumps(masked(result), ensure_ascii=False),
        content_type="application/json",
        headers={
            "Content-Disposition": f'attachment; filename="result-{pk}.json"',
            "X-Content-Type-Options": "nosniff",
        },
    )
