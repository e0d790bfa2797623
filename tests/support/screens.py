"""The admin's screens, which are registered when the addresses are imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Model

import queueops.site.urls  # noqa: F401 - registers them

# Those of which test_every_screen draws pictures, by their names; other tests draw the rest.
LISTS = {
    "batches": "jobs_batch",
    "provider-batches": "jobs_providerbatch",
    "batch-policies": "jobs_batchpolicy",
    "pauses": "jobs_pauseswitch",
    "windows": "jobs_maintenancewindow",
    "bulk-operations": "jobs_bulkoperation",
    "uploads": "jobs_upload",
    "alerts": "ratelimits_quotaalert",
    "objectives": "jobs_objective",
    "silences": "ratelimits_alertsilence",
    "user-quotas": "ratelimits_allowanceoverride",
    "executors": "jobs_executor",
    "pools": "jobs_pool",
    "breakers": "jobs_servicebreaker",
    "audit-trail": "audit_auditentry",
    "webhooks": "jobs_webhook",
    "deliveries": "jobs_webhookdelivery",
    "retry-policies": "jobs_retrypolicy",
    "aging-rules": "jobs_agingrule",
    "schedules": "jobs_schedule",
    "house-keeping": "django_q_schedule",
    "alert-routes": "ratelimits_alertroute",
    "projects": "tenancy_project",
    "producer-keys": "tenancy_producerkey",
    "credentials": "tenancy_credential",
    "credential-pools": "tenancy_credentialpool",
    "issuers": "tenancy_issuer",
    "accounts": "auth_user",
    "personal-tokens": "access_personaltoken",
    "roles": "auth_group",
    "sign-in-counts": "access_signincount",
}


def registered() -> Iterator[tuple[type[Model], Any]]:
    yield from admin.site._registry.items()


def address_name(model: type[Model]) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"
