"""Webhooks: where projects are told that a batch ended."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from jobs.models import Webhook, WebhookDelivery
from queueops.core.errors import QueueOpsError
from queueops.tenancy.signing import new_signing_secret

from . import showing
from .paging import BoundedListMixin
from .rules import AuditedMixin
from .verbs import ReadOnlyMixin, VerbsMixin

WRITTEN_BY_ROTATION = ("secret", "rotated_at")  # not loaded, so that saving a form does not bring an old token back


class SignedForm(forms.ModelForm):  # type: ignore[type-arg]
    """Gives what is added its secret, whose text is on the instance as `shown_secret` until it has been shown."""

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if self.instance._state.adding and self.is_signed(given):  # noqa: SLF001 - the id is made before it is stored
            try:
                self.instance.shown_secret, self.instance.secret = new_signing_secret()
            except QueueOpsError as error:
                raise ValidationError(error.message, code=error.code) from None
        return given

    def is_signed(self, given: dict[str, Any]) -> bool:
        return True


@admin.register(Webhook)
class WebhookAdmin(AuditedMixin, VerbsMixin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
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
class WebhookDeliveryAdmin(ReadOnlyMixin, VerbsMixin, BoundedListMixin, ModelAdmin):  # type: ignore[misc]
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


def shown_once(
    model_admin: Any, request: HttpRequest, *, title: str, secret: str, explains: str, goes_on_to: str
) -> HttpResponse:
    """The only page that ever shows a secret; no cache keeps it, and loading it again does not bring it back."""
    list(messages.get_messages(request))  # read, so that "added successfully" does not turn up on a later page
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": title,
        "secret": secret,
        "explains": explains,
        "goes_on_to": goes_on_to,
    }
    response = TemplateResponse(request, "admin/jobs/shown_once.html", context)
    response["Cache-Control"] = "no-store"
    return response
