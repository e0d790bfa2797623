"""One row of everything, each text of it marked, so that a leak shows in whatever answer it is."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db.models import Model
from django.db.models.functions import Now
from django.utils import timezone
from django_q.models import Schedule as Housekeeping

from jobs.door.models import DoorBatch, DoorFile, DoorFilePart, ModelRoute, Protocol
from jobs.models import (
    Batch,
    BatchPolicy,
    BulkOperation,
    DeadLetter,
    Executor,
    Job,
    JobEvent,
    Objective,
    PauseSwitch,
    Pool,
    ProviderBatch,
    ProviderBatchLine,
    SavedFilter,
    Schedule,
    ScheduleFire,
    ServiceBreaker,
    Upload,
    WebhookDelivery,
    WebhookJob,
)
from jobs.states import JobState
from queueops.access.models import PersonalToken, SignInCount
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.tenancy.credential_pools import refusals
from queueops.tenancy.models import (
    Credential,
    CredentialPool,
    CredentialPoolMember,
    CredentialRefusal,
    Issuer,
    ProducerKey,
    Project,
    digest_of,
)
from queueops.tenancy.secrets import credentials
from ratelimits.alerts.alerts import open_alert
from ratelimits.alerts.silences import silence_alerts
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import AllowanceOverride, Budget, Limit, Price, ResumeRamp, Spend, UsageTracking
from ratelimits.subjects import Subject
from ratelimits.tuning import concurrency_caps, limits
from tests.factories import (
    make_allowance,
    make_batch,
    make_dead_letter,
    make_job,
    make_project,
    make_reservation,
    make_route,
    make_usage_event,
    make_webhook,
    make_window,
)
from tests.security.people import person

MARK = "canary-7c1f"
PROJECT = "acme"
# What a request may write although it changes nothing: who is signed in, and when a key was used.
KEPT_OUT: tuple[type[Model], ...] = (Session, LogEntry)


@dataclass(frozen=True)
class World:
    """`ids` has the row of each screen, by `<app>_<model>`, and by other names rows that have an address alone."""

    ids: dict[str, str]

    @property
    def of_screens(self) -> dict[str, str]:
        screens = {f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry}
        return {name: pk for name, pk in self.ids.items() if name in screens}

    @classmethod
    def make(cls, text: str = MARK, *, project: str = PROJECT, shared: str = "shared") -> World:
        """
        Args:
            text: Goes wherever somebody outside can write something.
            shared: The same for limits, which belong to no project: every key that may read sees them.
        """
        catalogue.forget()
        roles.make_groups()
        made_project = make_project(project)
        type(made_project).objects.filter(pk=project).update(name=text)
        batch = make_batch(project=project, name=text, submitted_by=text[:100])
        made: dict[str, Model] = {"tenancy_project": made_project, "jobs_batch": batch}
        made["jobs_job"] = job = make_job(project=project, batch=batch)
        letter = make_dead_letter(
            project=project,
            batch=batch,
            payload=json.dumps({"method": "GET", "url": "http://127.0.0.1:9/", text: [text]}),
            error_message=text,
            error_class=text,
            remediation=text,
            note=text,
            attempts=[{"at": text, "message": text, "details": {text: text}}],
        )
        made["jobs_deadletter"] = letter
        Job.objects.filter(pk__in=[job.pk, letter.job_id]).update(
            result={text: text}, progress_message=text, last_error_message=text, last_error_code="x", effect_key=text
        )
        made["jobs_pauseswitch"] = PauseSwitch.objects.create(scope="kind", key=text, reason=text, paused_by=text)
        made["ratelimits_resumeramp"] = ResumeRamp.objects.update_or_create(
            defaults={"started_at": Now(), "over_seconds": 9, "held_share": 1, "slots": 1, "started_by": text}
        )[0]
        made["jobs_bulkoperation"] = BulkOperation.objects.create(
            action="cancel_jobs",
            parameters={"project_id": project, "batch_id": str(batch.pk), "note": text},
            reason=text,
            actor=text,
            total=1,
            error=text,
        )
        made["jobs_executor"] = Executor.objects.create(
            host=text, pid=1, process_started_at=0, cluster_pid=1, slots=5, in_flight=1, loop_lag_ms=1
        )
        made["jobs_servicebreaker"] = ServiceBreaker.objects.create(
            service="a-service", project_id=project, failures=9, opened_at=Now(), last_error=text
        )
        made |= (
            _lane_of(made_project, text, letter.job_id)
            | _objective(made_project, text)
            | _schedule(made_project, text)
            | {"jobs_maintenancewindow": make_window(made_project.pk, reason=text)}
            | _door(made_project, text, batch)
        )
        made |= _webhook(made_project, text, letter, told=job.pk)
        made["jobs_upload"] = Upload.objects.create(
            project=made_project,
            name=text,
            file_name=text,
            format="ndjson",
            default_kind=text[:100],
            content=zlib.compress(b"{}"),
            size_bytes=2,
            lines=1,
            error_count=1,
            errors=[{"line": 1, "code": "x", "message": text, "fields": {text: [text]}}],
            sample=[{"line": 1, "kind": text, "payload": {text: text}}],
            uploaded_by=text[:100],
        )
        made["audit_auditentry"] = AuditEntry.objects.create(
            project_id=project, actor=text, action="x", target=text, reason=text, before={text: text}, after={"a": text}
        )
        made["tenancy_producerkey"] = ProducerKey.issue(made_project, name=text)[0]
        credential = Credential.objects.create(
            name=f"credential-{len(text)}", service=text[:64], secret=credentials.seal({"token": text})
        )
        made["tenancy_credential"] = credential
        made["tenancy_credentialpool"] = pool_of_keys = CredentialPool.objects.create(
            name=f"pool-{len(text)}", service=text[:64]
        )
        CredentialPoolMember.objects.create(pool=pool_of_keys, credential=credential)
        CredentialRefusal.objects.bulk_create(
            CredentialRefusal(credential=credential, of_project=project, job=uuid4(), call=uuid4(), reason=text[:500])
            for _ in range(refusals.CALLS_OF_EVIDENCE)
        )
        made["tenancy_issuer"] = Issuer.objects.create(
            project=made_project,
            name=text,
            issuer=f"{project} {text}",
            audiences=[text[:200]],
            secret=credentials.seal({"hs256": text}),
        )
        given = {"name": shared, "service": "sheets", "call_type": "write", "capacity": 300}
        limit = Limit.objects.get(pk=limits.create_limit(given, actor="user:1").limit_id)
        made["ratelimits_limit"] = limit
        decide([Call(Subject("sheets", "write", project, "u"), kind="sheets.update")])
        made["ratelimits_counter"] = limit.counters.get()
        alert = open_alert("oldest_ready", text, severity="warning", message=text, figures={"text": text})
        assert alert is not None
        made["ratelimits_quotaalert"] = alert
        made["ratelimits_alertsilence"] = silence_alerts(project="acme", hours=1, actor=text, reason=text)
        made["ratelimits_alertroute"] = make_route(name=text, secret=f"whsec_{text}", last_error=text)
        owner = person(f"owner-{User.objects.count()}", first_name=text, last_name=text)
        made["auth_user"] = owner
        made["auth_group"] = Group.objects.earliest("pk")
        made["jobs_savedfilter"] = SavedFilter.objects.create(
            owner=owner, screen="job", name=text[:60], query="state=failed", shared=True
        )
        cap = concurrency_caps.set_at_once(project, 5, actor="user:1")
        made["at_once"] = Limit.objects.get(pk=cap.limit_id)
        made |= _access(text, owner)
        made |= _usage(text, project) | _money(text, project)
        pool, _ = Pool.objects.update_or_create(name="shared", defaults={"kinds": [text[:100]], "place": 900})
        made["jobs_pool"] = pool
        made["jobs_agingrule"] = apps.get_model("jobs.AgingRule").objects.earliest("tier")
        made["jobs_retrypolicy"] = apps.get_model("jobs.RetryPolicy").objects.earliest("name")
        made["django_q_schedule"] = Housekeeping.objects.earliest("pk")
        return cls({name: str(row.pk) for name, row in made.items()})


def _access(text: str, owner: User) -> dict[str, Model]:
    """A personal token, and a failed sign-in."""
    return {
        "access_personaltoken": PersonalToken.objects.create(
            user=owner, name=text[:200], prefix=text[:16], digest=digest_of(text), expires_at=Now() + timedelta(days=1)
        ),
        "access_signincount": SignInCount.objects.create(
            purpose="password", account=text, failures=1, forget_at=Now() + timedelta(hours=1)
        ),
    }


def _usage(text: str, project: str) -> dict[str, Model]:
    """An allowance, a user's own quota, and what that user has used and reserved of this month."""
    allowance, user = make_allowance(project), uuid4()
    override = AllowanceOverride.objects.create(project_id=project, user_id=user, quota=50, note=text)
    reservation = make_reservation(user, project=project, amount=2, idempotency_key=text)
    event = make_usage_event(user, project=project, service=text[:64], over_limit=True)
    return {
        "ratelimits_allowance": allowance,
        "ratelimits_allowanceoverride": override,
        "ratelimits_usagetracking": UsageTracking.objects.get(project_id=project, user_id=user),
        "ratelimits_usagereservation": reservation,
        "ratelimits_usageevent": event,
    }


def _money(text: str, project: str) -> dict[str, Model]:
    """A price, a budget, and a call of this moment that cost something."""
    now = timezone.now()
    price = Price.objects.create(provider=text[:64], model=text[:100], unit="input_tokens", amount=1, valid_from=now)
    budget = Budget.objects.create(project_id=project, name=text[:100], amount=10**9, note=text)
    spend = Spend.objects.create(
        job_id=uuid4(), token=1, project_id=project, provider=text[:64], model=text[:100], at=now, money=1
    )
    return {"ratelimits_price": price, "ratelimits_budget": budget, "ratelimits_spend": spend}


def cursor_before_its_events() -> int:
    """One that reads the project's events. 0 does not, once other tests wrote many: a socket takes it as too old."""
    return JobEvent.objects.filter(project_id=PROJECT).earliest("id").id - 1


def _lane_of(project: Project, text: str, job_id: UUID) -> dict[str, Model]:
    """A batch at a provider, with a line, and a batch policy."""
    provider_batch = ProviderBatch.objects.create(
        project=project,
        kind="llm.generate",
        service="openai",
        provider="openai",
        model=text[:100],
        credential=text[:100],
        state="failed",
        provider_id=text[:200],
        files={"input": text},
        lines=1,
        error=text,
        cancel_reason=text[:200],
        complete_by=timezone.now(),
        live_at=timezone.now(),
        create_before=timezone.now(),
        closed_at=timezone.now(),
    )
    ProviderBatchLine.objects.create(provider_batch=provider_batch, number=0, job_id=job_id, token=1)
    policy = BatchPolicy.objects.create(project=project, kind="llm.generate")
    return {"jobs_providerbatch": provider_batch, "jobs_batchpolicy": policy}


def _door(project: Project, text: str, batch: Batch) -> dict[str, Model]:
    """A route, and what came in by both doors: a file, a batch of each, a call."""
    file = DoorFile.objects.create(
        project=project,
        purpose="batch",
        file_name=text,
        size_bytes=len(text),
        created_by=text[:100],
        expires_at=timezone.now() + timedelta(days=1),
    )
    DoorFilePart.objects.create(project=project, file=file, number=0, content=zlib.compress(text.encode()))
    made: dict[str, Model] = {
        "door_modelroute": ModelRoute.objects.create(
            project=project, pattern="m", provider="openai", credential=text[:100]
        ),
        "door_file": file,
        "door_call": make_job(
            project=project.pk,
            state=JobState.COMPLETED,
            kind="llm.call",
            payload=json.dumps({"path": "/v1/responses", "body": {"model": "m", "input": text}}),
            result={"status": 200, "body": {"output": text}},
        ),
    }
    ended = make_batch(project=project.pk, name=text, finished_at=timezone.now())
    for door, of_queue in ((Protocol.OPENAI, batch), (Protocol.ANTHROPIC, ended)):
        made[f"door_{door}_batch"] = DoorBatch.objects.create(
            project=project,
            door=door,
            batch_id=of_queue.pk,
            file_id=file.pk,
            file_name=text,
            endpoint="/v1/responses",
            window="24h",
            complete_by=timezone.now(),
            metadata={"note": text},
            digest=text[:64],
            asked=text[:64],
        )
    return made


def _objective(project: Project, text: str) -> dict[str, Model]:
    objective = Objective.objects.create(
        name=text[:100], project=project, kind=text[:100], within_seconds=60, note=text
    )
    return {"jobs_objective": objective}


def _schedule(project: Project, text: str) -> dict[str, Model]:
    """One that is paused, and was refused once."""
    job = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/", text: text}}
    schedule = Schedule.objects.create(project=project, name=text[:100], cron="0 * * * *", jobs=[job], paused=True)
    ScheduleFire.objects.create(
        schedule=schedule,
        project=project,
        due_at=timezone.now(),
        outcome="refused",
        error_code="x",
        error_message=text,
        asked_by=text[:100],
    )
    return {"jobs_schedule": schedule}


def _webhook(project: Project, text: str, letter: DeadLetter, *, told: UUID) -> dict[str, Model]:
    """One with a filter, a message that the letter's job carries out, and a job that it hears of."""
    webhook = make_webhook(
        project, url="https://example.org/", secret=f"whsec_{text}", hears_jobs=True, tags=[text[:100]]
    )
    WebhookJob.objects.create(webhook=webhook, project=project, job_id=told)
    delivery = WebhookDelivery.objects.create(webhook=webhook, batch_id=letter.batch_id, job=letter.job)
    return {"jobs_webhook": webhook, "jobs_webhookdelivery": delivery}


def everything(*, project: str = "", signed_in: User | None = None) -> dict[str, list[dict[str, Any]]]:
    """
    All rows there are, without those that change by looking.

    Args:
        project: Only what belongs to it.
        signed_in: Whom the test itself signs in and out: the audit trail has that too, and it is left out.
    """
    rows = {}
    for model in apps.get_models():
        names = {field.attname for field in model._meta.concrete_fields}
        if model in KEPT_OUT or not model._meta.managed or (project and "project_id" not in names):
            continue
        found = model._default_manager.filter(project_id=project) if project else model._default_manager.all()
        if model is AuditEntry and signed_in is not None:
            found = found.exclude(action__in=("sign_in", "sign_out"), actor=f"user:{signed_in.pk}")
        seen = names - {"last_used_at", "last_login"}
        rows[model._meta.label] = sorted(found.values(*seen), key=str)
    return rows
