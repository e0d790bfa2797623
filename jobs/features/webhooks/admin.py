"""The admin screen of webhooks: the addresses where projects are told that batches and jobs ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminTextInputWidget,
    UnfoldAdminURLInputWidget,
)

from jobs.admin.states import state_badge
from jobs.features.webhooks import webhooks
from jobs.features.webhooks.models import OUTCOMES, SECRETS
from jobs.features.webhooks.send_again import count_failed, send_webhook_again
from jobs.models import Webhook, WebhookDelivery, WebhookJob
from queueops.core.errors import QueueOpsError
from queueops.core.values.numbers import numbered
from queueops.core.values.tags import SEPARATOR, entered_tags
from queueops.screens import formatting, receivers
from queueops.screens.admin import QueueAdmin, ServiceFormAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.filters import Choice, ProjectFilter
from queueops.screens.forms import CheckedForm, OptionalReasonForm, offer, optional_reason
from queueops.screens.paging import BoundedListMixin, IdSearchMixin
from queueops.screens.receivers import HowManyForm, send_again_verb, sent_again
from queueops.screens.secrets import change_secret_action, shown_once
from queueops.screens.verbs import ReadOnlyMixin, Verb, VerbOutcome, actor_of, on_one
from queueops.tenancy.secrets.signing import new_signing_secret

LAST_MESSAGES = 10
MAX_WEBHOOKS_LISTED = 200
MAX_TO_BE_TOLD_COUNTED = 10_000
CHANGE = "jobs.change_webhook"
Event = WebhookDelivery.Event


def _test(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    for row in Webhook.objects.filter(pk__in=ids).only("project_id"):
        webhooks.send_test(row.pk, project_id=row.project_id, actor=actor, reason=reason)
    return VerbOutcome(len(ids))


TEST = Verb(
    name="test",
    permission="jobs.change_webhook",
    label="Send a test",
    done="sent a test",
    explains="A signed message of the type webhook.test, also while it is switched off. What became of it shows "
    "under its last messages, and in the job that carries it out.",
    icon="send",
    carry_out=_test,
    form=OptionalReasonForm,
)


def _send_again(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    told = [
        send_webhook_again(row.pk, project_id=row.project_id, actor=actor, reason=reason)
        for row in Webhook.objects.filter(pk__in=ids).only("project_id")
    ]
    return sent_again(sum(one.sent for one in told), left=sum(one.left for one in told))


class SendWebhookAgainForm(HowManyForm):
    def told_of(self, row: Any) -> tuple[str, datetime | None]:
        failed = count_failed(row)
        return failed.words, failed.first_at


SEND_AGAIN = send_again_verb(
    permission="jobs.change_webhook",
    explains="This ends its pause. Messages that failed for good are sent again, the oldest first, under their old "
    "ids, so a receiver drops what it has seen. Jobs that have ended meanwhile are told next.",
    carry_out=_send_again,
    form=SendWebhookAgainForm,
)


class SecretForm(OptionalReasonForm):
    overlap_hours = forms.FloatField(
        label="Hours of overlap",
        min_value=0,
        max_value=webhooks.MAX_OVERLAP.total_seconds() / 3600,
        initial=24,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="So long messages are signed with both secrets. 0: the former one signs nothing from now on.",
    )
    field_order = ("overlap_hours", "reason")


def _change_secret(row: Webhook, *, actor: str, overlap_hours: float, reason: str) -> tuple[str, str]:
    overlap = timedelta(hours=overlap_hours)
    told = {"project_id": row.project_id, "actor": actor, "reason": reason}
    changed, secret = webhooks.change_secret(row.pk, overlap=overlap, **told)
    return secret, _overlaps(changed)


CHANGE_SECRET = change_secret_action(
    permission=CHANGE,
    explains="Messages, also those that are repeated, are signed with a new secret, which the next page shows once."
    " A receiver that checks each signature in webhook-signature takes them before and after it knows the new one.",
    form_class=SecretForm,
    carry_out=_change_secret,
)


class _TagsField(forms.CharField):
    widget = UnfoldAdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        return f"{SEPARATOR} ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return entered_tags(super().to_python(value))


class WebhookForm(CheckedForm):
    url = forms.URLField(
        label="URL",
        max_length=500,
        assume_scheme="https",
        widget=UnfoldAdminURLInputWidget,
        help_text="Gets each message by POST, signed. The secret is shown once, when this is added.",
    )
    kinds = forms.MultipleChoiceField(
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="Only these. None chosen: all.",
    )
    tags = _TagsField(label="All of these tags", required=False, help_text="Separated by commas.")
    any_tag = _TagsField(label="One of these tags", required=False, help_text="Or several. Separated by commas.")
    outcomes = forms.MultipleChoiceField(
        choices=OUTCOMES,
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="Only jobs that ended so; failed is for good, and has a dead letter. None chosen: all.",
    )
    reason = optional_reason()

    class Meta:
        model = Webhook
        fields = ("project", *webhooks.FIGURES)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "kinds" in self.fields:
            # Offer a kind that nobody carries out any more, too: a person must remove it before the webhook is saved.
            offer(self, "kinds", dict.fromkeys([*webhooks.kinds_heard(), *self.instance.kinds]))

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance._state.adding:  # noqa: SLF001 - the id is made before it is stored
            try:
                new_signing_secret()  # fails here, before the entered values are lost
            except QueueOpsError as error:
                raise forms.ValidationError(error.message, code=error.code) from None
        return given

    def check_row(self) -> None:
        webhooks.check_webhook(self.instance)


@admin.register(Webhook)
class WebhookAdmin(ServiceFormAdmin):
    form = WebhookForm
    list_display = ("address", "project", "hears", "enabled", "takes", "made")
    list_select_related = ("project",)
    list_filter = (ProjectFilter, "enabled", "hears_jobs")
    list_filter_submit = True
    search_fields = ("url",)
    search_help_text = "A part of its URL"
    actions_detail = ("test", "send_again", "change_secret")
    test, send_again, change_secret = on_one(TEST), on_one(SEND_AGAIN), CHANGE_SECRET
    fixed_fields = ("project",)
    is_deletable = False  # the webhook's deliveries would be deleted, too; switch it off instead
    empty_title = "No project is told what ended."
    empty_hint = "A webhook gets a signed POST when a batch has ended, or when jobs have that fit its filter."
    change_form_outer_before_template = "admin/jobs/webhook/messages.html"
    fieldsets = (
        (None, {"fields": ("project", "url", "enabled")}),
        ("What it hears of", {"fields": ("hears_batches", "hears_jobs")}),
        (
            "Which ended jobs",
            {
                "fields": (*webhooks.OF_JOBS, "most_jobs"),
                "description": "A job is told that fits all that is given; nothing given is every job.",
            },
        ),
        ("Why", {"fields": ("reason",)}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer(*SECRETS)

    def shown_of(self, request: HttpRequest, row: Webhook) -> dict[str, Any]:
        waiting = row.jobs.filter(delivery_id=None).order_by("id").values("pk")[:MAX_TO_BE_TOLD_COUNTED].count()
        failed = count_failed(row)
        more = "at least " if waiting == MAX_TO_BE_TOLD_COUNTED else ""
        last = row.deliveries.select_related("job", "batch").order_by("-pk")[:LAST_MESSAGES]
        return {
            "webhook": row,
            "failed": failed.words if failed.count else "",
            "takes": receivers.takes(row),
            "overlaps": _overlaps(row),
            "waiting": numbered(waiting, "ended job waits", "ended jobs wait", before=more),
            "last_messages": [
                (
                    formatting.ago(one.created_at),
                    _about(one),
                    state_badge(one.job.status),
                    one.job.last_error_code,
                    _page(one),
                )
                for one in last
            ],
            "all_messages": f"{reverse('admin:jobs_webhookdelivery_changelist')}?webhook={row.pk}",
        }

    def save_model(self, request: HttpRequest, obj: Webhook, form: WebhookForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        figures = {name: form.cleaned_data[name] for name in webhooks.FIGURES}
        told = {"actor": actor_of(request), "reason": form.cleaned_data.get("reason", "")}
        saved, secret = webhooks.save_webhook(obj.pk if change else None, figures, project_id=obj.project_id, **told)
        obj.pk, obj.shown_secret = saved.pk, secret
        if strange := webhooks.unknown_tags(saved):
            messages.warning(request, f"Nothing of {obj.project_id} has the tags so far: {', '.join(strange)}.")

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        return shown_once(
            self,
            request,
            title="Webhook added",
            secret=obj.shown_secret,
            explains="The signing secret, as Standard Webhooks want it. The receiver checks each message with it.",
        )

    address = column("URL", lambda row: row.url)

    @admin.display(description="hears of")
    def hears(self, row: Webhook) -> str:
        heard = [*(["batches"] if row.hears_batches else []), *([_filter_words(row)] if row.hears_jobs else [])]
        return "; ".join(heard)

    takes = column("its messages", receivers.takes)
    made = time_column("created", "created_at", ordering="created_at")


class WebhookFilter(Choice):
    title = "webhook"
    parameter_name = "webhook"
    column = "webhook_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = Webhook.objects.order_by("project_id", "url").values_list("pk", "project_id", "url")
        return [(str(pk), f"{project}: {url}") for pk, project, url in rows[:MAX_WEBHOOKS_LISTED]]


class MessageEventFilter(Choice):
    title = "event"
    parameter_name = "event"
    choices_offered = Event.choices


def _about(delivery: WebhookDelivery) -> SafeString | str:
    if batch := delivery.batch:
        return format_html("<span>batch {}</span>", formatting.link("jobs_batch", batch.pk, batch.name))
    return "test" if delivery.event == Event.TEST else numbered(delivery.jobs_told, "ended job")


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyMixin, IdSearchMixin, BoundedListMixin, QueueAdmin):
    list_display = ("sent", "webhook", "about", "job_link", "state")
    list_select_related = ("webhook", "job", "batch")
    list_filter = (WebhookFilter, MessageEventFilter)
    search_fields = ("id",)
    search_help_text = "The id of a message, or of a job or batch that one tells of"
    fields = ("webhook", "event", "about", "told", "job_link", "state", "error_code", "created_at")

    def with_id(self, rows: QuerySet[WebhookDelivery], identifier: UUID) -> QuerySet[WebhookDelivery]:
        tells = list(WebhookJob.objects.filter(job_id=identifier).values_list("delivery_id", flat=True))
        return rows.filter(pk__in=[identifier, *filter(None, tells)]) | rows.filter(batch_id=identifier)

    about = column("tells of", _about)

    @admin.display(description="ended jobs")
    def told(self, delivery: WebhookDelivery) -> SafeString | str:
        rows = WebhookJob.objects.filter(delivery_id=delivery.pk).order_by("id").values_list("job_id", flat=True)
        return format_html_join(" ", "{}", ((formatting.link("jobs_job", one),) for one in rows)) or formatting.NOTHING

    @admin.display(description="carried out by job")
    def job_link(self, delivery: WebhookDelivery) -> SafeString:
        return formatting.link("jobs_job", delivery.job_id)

    @admin.display(description="is")
    def state(self, delivery: WebhookDelivery) -> SafeString:
        return state_badge(delivery.job.status)

    @admin.display(description="last error")
    def error_code(self, delivery: WebhookDelivery) -> str:
        return delivery.job.last_error_code or formatting.NOTHING

    sent = time_column("created", "created_at")


def _overlaps(row: Webhook) -> str:
    until = row.former_secret_until
    return f"Until {formatting.exact(until)} the former secret signs, too." if until and until > timezone.now() else ""


def _filter_words(row: Webhook) -> str:
    """Describe a webhook's filter, as `jobs: http.request, failed, tags red and nightly` or `all jobs`."""
    parts = [
        " or ".join(row.kinds),
        " or ".join(row.outcomes),
        f"tags {' and '.join(row.tags)}" if row.tags else "",
        f"tags {' or '.join(row.any_tag)}" if row.any_tag else "",
        f"user {row.user_id}" if row.user_id else "",
        f"batch {row.batch_id}" if row.batch_id else "",
    ]
    return f"jobs: {', '.join(filter(None, parts))}" if any(parts) else "all jobs"


def _page(delivery: WebhookDelivery) -> SafeString:
    return formatting.link("jobs_webhookdelivery", delivery.pk)
