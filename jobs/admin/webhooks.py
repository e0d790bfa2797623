"""Webhooks: where projects are told that a batch ended."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from jobs.models import Webhook, WebhookDelivery
from queueops.audit.audited import AuditedMixin
from queueops.screens import showing
from queueops.screens.admin import QueueAdmin
from queueops.screens.paging import BoundedListMixin
from queueops.screens.secrets import shown_once
from queueops.screens.verbs import ReadOnlyMixin
from queueops.tenancy.admin.signed import WRITTEN_BY_ROTATION, SignedForm


@admin.register(Webhook)
class WebhookAdmin(AuditedMixin, QueueAdmin):
    form = SignedForm
    list_display = ("url", "project", "enabled", "created_at")
    list_select_related = ("project",)
    fields = ("project", "url", "enabled")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer(*WRITTEN_BY_ROTATION)

    def get_readonly_fields(self, request: HttpRequest, obj: Webhook | None = None) -> tuple[str, ...]:
        return ("project",) if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "url":
            kwargs["assume_scheme"] = "https"
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Webhook | None = None) -> bool:
        return False  # its deliveries would go with it; switch it off instead

    def audited(self, obj: Webhook) -> dict[str, Any]:
        return {"project": obj.project_id, "url": obj.url, "enabled": obj.enabled}

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return shown_once(
            self,
            request,
            title="Webhook added",
            secret=obj.shown_secret,
            explains="The signing secret, as Standard Webhooks want it. The receiver checks each message with it.",
            goes_on_to=reverse("admin:jobs_webhook_changelist"),
        )


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyMixin, BoundedListMixin, QueueAdmin):
    list_display = ("webhook", "batch_link", "job_link", "sent")
    list_select_related = ("webhook",)

    @admin.display(description="batch")
    def batch_link(self, delivery: WebhookDelivery) -> SafeString:
        return showing.link("jobs_batch", delivery.batch_id)

    @admin.display(description="carried out by job")
    def job_link(self, delivery: WebhookDelivery) -> SafeString:
        return showing.link("jobs_job", delivery.job_id)

    @admin.display(description="created")
    def sent(self, delivery: WebhookDelivery) -> SafeString | str:
        return showing.ago(delivery.created_at)
