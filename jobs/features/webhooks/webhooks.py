"""Makes, changes and tests webhooks; tell.py sends them messages about ended batches and jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from pydantic import TypeAdapter, ValidationError

from jobs.features.webhooks.errors import BadWebhook, SecretChanging, UnknownWebhook
from jobs.features.webhooks.messages import KIND_OF_JOBS, make_message
from jobs.features.webhooks.models import SECRETS
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.registry import all_handlers, served_names
from jobs.models import Batch, Tag, Webhook, WebhookDelivery
from jobs.services.upkeep.user_rows import UserRows
from queueops.audit import trail
from queueops.core.clock import database_moment
from queueops.core.errors import fields_of
from queueops.core.outbound.policy import OutboundRefused, parse_target
from queueops.core.postgres.unique_names import Faults, faults_of
from queueops.core.values.near_names import nearest
from queueops.core.values.reasons import clean_reason
from queueops.core.values.tags import Tags
from queueops.tenancy.receivers import Receiver
from queueops.tenancy.secrets.signing import new_signing_secret

OF_JOBS = ("kinds", "tags", "any_tag", "outcomes", "user_id", "batch_id")
FIGURES = ("url", "enabled", "hears_batches", "hears_jobs", *OF_JOBS, "most_jobs")
MAX_KINDS = 50
MAX_HEARERS = 50  # webhooks of a project for jobs, and as many for batches: one transaction handles them all
MAX_OVERLAP = timedelta(days=7)
HEARS = {"hears_batches": "batches", "hears_jobs": "jobs"}
SCHEMES = ("http", "https")

_TAGS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Tags)


@transaction.atomic
def save_webhook(
    webhook_id: UUID | None, figures: Mapping[str, Any], *, project_id: str, actor: str, reason: str = ""
) -> tuple[Webhook, str]:
    """
    Make a webhook, or change one.

    New filters apply, within seconds, to jobs whose end is noted from then on. A changed address, or a given `enabled`,
    ends a pause, but does not send again messages that failed before.

    Args:
        webhook_id: None: a new one.
        figures: Values by their names in FIGURES; fields left out stay as they are.
        project_id: The project that the webhook belongs to; it cannot change.

    Returns:
        The webhook, and its signing secret if it is new: the secret is shown now or never.

    Raises:
        BadWebhook: With the path of each bad field. Nothing was changed.
        UnknownWebhook: The project has no webhook of that id.
        CredentialKeysMissing
        ProjectMoved, ProjectMoving
    """
    new = webhook_id is None
    webhook = Webhook(project_id=project_id) if webhook_id is None else _locked(webhook_id, project_id=project_id)
    before, url = None if new else _told(webhook), webhook.url
    heard = not new and webhook.enabled and webhook.hears_jobs
    for name, value in figures.items():
        setattr(webhook, name, list(dict.fromkeys(value)) if isinstance(value, list | tuple) else value)
    check_webhook(webhook)
    if "enabled" in figures or webhook.url != url:
        webhook.go_on()
    if not heard:
        webhook.jobs_since = database_moment()
    text = ""
    if new:
        text, webhook.secret = new_signing_secret()
        webhook.save(force_insert=True)
    else:
        webhook.save(update_fields=[*FIGURES, *Receiver.NOT_FAILING, "jobs_since"])
    trail.record(
        actor=actor,
        action="add_webhook" if new else "change_webhook",
        target=f"webhook {webhook.pk}",
        before=before,
        after=_told(webhook),
        reason=clean_reason(reason),
        project_id=project_id,
    )
    return webhook, text


def check_webhook(webhook: Webhook) -> None:
    """
    Raises:
        BadWebhook: With the path of each bad field.
    """
    faults = faults_of(webhook, exclude=[*SECRETS, "project"], validate_constraints=False)
    if "url" not in faults and urlsplit(webhook.url).scheme.lower() not in SCHEMES:
        faults["url"] = ["Give an address that begins with https:// or http://."]
    elif "url" not in faults and "@" in urlsplit(webhook.url).netloc:
        faults["url"] = ["The address has no user and no password: it is shown and audited. Check the signature."]
    elif "url" not in faults and webhook.enabled:  # switching off must work even if the address is refused by now
        try:
            parse_target(webhook.url, policy=outbound_policy())
        except OutboundRefused as refusal:
            faults["url"] = [refusal.message]
    if not (webhook.hears_batches or webhook.hears_jobs):
        faults["hears_jobs"] = ["It would hear of nothing: let it hear of batches or of jobs, or switch it off."]
    elif webhook.enabled:
        others = Webhook.objects.filter(project=webhook.project_id, enabled=True).exclude(pk=webhook.pk)
        for name, what in HEARS.items():
            if getattr(webhook, name) and others.filter(**{name: True}).count() >= MAX_HEARERS:
                faults[name] = [f"At most {MAX_HEARERS} webhooks of a project hear of {what}: switch one off."]
    if faults := faults | _faults_of_filter(webhook):
        raise BadWebhook(fields=faults)


def _faults_of_filter(webhook: Webhook) -> Faults:
    faults: Faults = {}
    for name in ("tags", "any_tag"):
        try:
            _TAGS.validate_python(getattr(webhook, name))
        except ValidationError as error:
            faults[name] = [message for messages in fields_of(error).values() for message in messages]
    if len(webhook.kinds) > MAX_KINDS:
        faults["kinds"] = [f"At most {MAX_KINDS} kinds; leave them out to hear of all."]
    elif strange := unknown_kinds(webhook.kinds):
        faults["kinds"] = [f"No handler carries out {kind!r}.{nearest(kind, kinds_heard())}" for kind in strange]
    if webhook.batch_id and not Batch.objects.filter(pk=webhook.batch_id, project=webhook.project_id).exists():
        faults["batch_id"] = ["The project has no such batch."]
    return faults


def unknown_kinds(kinds: Collection[str]) -> list[str]:
    """Kinds whose jobs cannot be heard of: no handler carries them out, or the platform itself submits them."""
    known, current = kinds_heard(), served_names()
    return [kind for kind in kinds if current.get(kind) not in known]


def kinds_heard() -> list[str]:
    return [handler.kind for handler in all_handlers() if not handler.internal]


def unknown_tags(webhook: Webhook) -> list[str]:
    """Tags that the webhook names but its project does not have yet: misspelt, or still to come."""
    wanted = [*webhook.tags, *webhook.any_tag]
    return [name for name in wanted if not Tag.objects.filter(name=name, project=webhook.project_id).exists()]


@transaction.atomic
def change_secret(
    webhook_id: UUID, *, overlap: timedelta, project_id: str, actor: str, reason: str = ""
) -> tuple[Webhook, str]:
    """
    Give a webhook another signing secret. Messages are signed with the former one, too, until `overlap` has passed.

    Args:
        overlap: At most MAX_OVERLAP. Zero: the former secret, and one before it, sign nothing from now on.

    Returns:
        The webhook, and its new secret, which is shown now or never.

    Raises:
        SecretChanging: The last overlap has not passed. Its former secret would be lost before receivers know another.
        UnknownWebhook
        CredentialKeysMissing
        ProjectMoved, ProjectMoving
    """
    webhook, now = _locked(webhook_id, project_id=project_id), database_moment()
    until = webhook.former_secret_until
    if overlap and until is not None and until > now:
        raise SecretChanging(until=until.isoformat())
    text, webhook.secret = new_signing_secret()
    webhook.former_secret_until = now + overlap
    webhook.save(update_fields=["secret", "former_secret_until"])
    trail.record(
        actor=actor,
        action="change_webhook_secret",
        target=f"webhook {webhook.pk}",
        after={"former_secret_until": webhook.former_secret_until.isoformat()},
        reason=clean_reason(reason),
        project_id=project_id,
    )
    return webhook, text


@transaction.atomic
def send_test(webhook_id: UUID, *, project_id: str, actor: str, reason: str = "") -> WebhookDelivery:
    """
    Send a signed test message, also to a webhook that is switched off.

    Raises:
        UnknownWebhook
        ProjectMoved, ProjectMoving
    """
    webhook = _locked(webhook_id, project_id=project_id)
    made = make_message(webhook, KIND_OF_JOBS, actor=actor, event=WebhookDelivery.Event.TEST)
    trail.record(
        actor=actor,
        action="test_webhook",
        target=f"webhook {webhook.pk}",
        reason=clean_reason(reason),
        project_id=project_id,
    )
    return made


def _locked(webhook_id: UUID, *, project_id: str) -> Webhook:
    rows = Webhook.objects.select_for_update(no_key=True).defer(*SECRETS)
    found = rows.filter(pk=webhook_id, project=project_id).first()
    if found is None:
        raise UnknownWebhook(webhook_id=str(webhook_id))
    return found


def _told(webhook: Webhook) -> dict[str, Any]:
    return {"project": webhook.project_id, **{name: getattr(webhook, name) for name in FIGURES}}


def rows_of_user(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    """Webhooks for an end user's jobs, for the erasure of the user."""
    own = Webhook.objects.filter(project_id=project_id, user_id=user_id)
    # A webhook that still hears jobs, without the user, would get everybody's.
    yield UserRows("webhooks for their jobs", own, {"user_id": None, "hears_jobs": False})
