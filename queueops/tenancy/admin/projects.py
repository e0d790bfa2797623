"""Projects and the keys of their producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminIntegerFieldWidget

from queueops.audit import trail
from queueops.audit.audited import AuditedMixin
from queueops.core.clock import Now
from queueops.screens.admin import PageAdmin
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import OptionalReasonForm, ReasonForm
from queueops.screens.secrets import IssuedAdmin, shown_once
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, on_one, on_selected
from queueops.tenancy.issuing import issue_key
from queueops.tenancy.models import ProducerKey, Project, Scope, default_scopes


@admin.register(Project)
class ProjectAdmin(AuditedMixin, PageAdmin):
    list_display: tuple[str, ...] = ("id", "name", "weight", "max_waiting_jobs", "keys", "read_by")
    fields = (
        "id",
        "name",
        "weight",
        "max_waiting_jobs",
        ("guard_percent", "guard_first", "guard_over"),
        "user_address",
        "anonymous_read",
        "encrypted",
    )
    fixed_fields = ("id",)
    is_deletable = False  # jobs name their project, and looking for them would read the whole table
    search_fields = ("id", "name")
    search_help_text = "A part of its id or name"

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        may_see_keys = request.user.has_perm("tenancy.view_producerkey")
        return tuple(name for name in self.list_display if name != "keys" or may_see_keys)

    def project_of(self, obj: Project) -> str:
        return obj.pk

    @display(description="read by", label={"everybody": "warning"})  # type: ignore[untyped-decorator]
    def read_by(self, project: Project) -> str:
        return "everybody" if project.anonymous_read else "those it knows"

    @admin.display(description="keys")
    def keys(self, project: Project) -> SafeString:
        address = reverse("admin:tenancy_producerkey_changelist")
        return format_html('<a class="qo-link" href="{}?project={}">keys</a>', address, project.pk)


@transaction.atomic
def _revoke(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    usable = ProducerKey.objects.select_for_update().filter(pk__in=ids, revoked_at=None).order_by("pk")
    revoked = 0
    for key in usable:
        revoked += ProducerKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now())
        trail.record(
            actor=actor, action="revoke_key", target=f"key {key.prefix}", reason=reason, project_id=key.project_id
        )
    return VerbOutcome(revoked, len(ids) - revoked)


REVOKE = Verb(
    name="revoke",
    permission="tenancy.change_producerkey",
    label="Revoke",
    done="revoked",
    explains="Requests with the key are refused from the next one on. This cannot be taken back.",
    icon="key_off",
    applies=lambda rows: rows.filter(revoked_at=None),
    unfit="revoked before",
    carry_out=_revoke,
    form=ReasonForm,
    overrides=True,
)


class RateForm(OptionalReasonForm):
    requests_per_minute = forms.IntegerField(
        label="Requests a minute",
        min_value=1,
        max_value=10_000_000,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="To each web process. Empty: as set for all keys.",
    )
    field_order = ("requests_per_minute", "reason")


@transaction.atomic
def _change_rate(ids: Sequence[int], *, actor: str, requests_per_minute: int | None, reason: str) -> VerbOutcome:
    key = ProducerKey.objects.select_for_update().filter(pk__in=ids, revoked_at=None).first()
    if key is None:
        return VerbOutcome(0, len(ids))
    ProducerKey.objects.filter(pk=key.pk).update(requests_per_minute=requests_per_minute)
    trail.record(
        actor=actor,
        action="change_key_rate",
        target=f"key {key.prefix}",
        reason=reason,
        before={"requests_per_minute": key.requests_per_minute},
        after={"requests_per_minute": requests_per_minute},
        project_id=key.project_id,
    )
    return VerbOutcome(1)


CHANGE_RATE = Verb(
    name="change_rate",
    permission="tenancy.change_producerkey",
    label="Change rate",
    done="changed",
    explains="How often its holder may ask. It counts from the next request on; beyond it the answer is 429.",
    icon="speed",
    applies=lambda rows: rows.filter(revoked_at=None),
    unfit="revoked before",
    carry_out=_change_rate,
    form=RateForm,
)


class IssueForm(forms.ModelForm):  # type: ignore[type-arg]
    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=default_scopes,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="What requests with the key may do.",
    )

    class Meta:
        model = ProducerKey
        fields = ("project", "name", "scopes", "requests_per_minute", "expires_at")

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError("That is past.")
        return expires_at


@admin.register(ProducerKey)
class ProducerKeyAdmin(IssuedAdmin):
    form = IssueForm
    list_display = ("prefix_shown", "of_project", "name", "scopes_shown", "rate", "state", "used", "expires")
    list_filter = (ProjectFilter,)
    fields = ("project", "name", "scopes", "requests_per_minute", "expires_at")
    readonly_fields = ("prefix_shown", "scopes_shown", "rate", "state", "used", "expires", "cost")
    actions = ("revoke_selected",)
    actions_detail = ("change_rate", "revoke")

    revoke_selected, revoke = on_selected(REVOKE), on_one(REVOKE)
    change_rate = on_one(CHANGE_RATE)

    def get_fields(self, request: HttpRequest, obj: ProducerKey | None = None) -> Sequence[str]:
        if obj is None:
            return self.fields
        shown = ("project", "name", *self.readonly_fields)
        return shown if request.user.has_perm("ratelimits.view_spend") else shown[:-1]

    def audit_targets(self, row: ProducerKey) -> list[str]:
        return [f"key {row.prefix}"]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        one_button = {"show_save_and_add_another": False, "show_save_and_continue": False}
        response: HttpResponse = super().add_view(request, form_url, {**(extra_context or {}), **one_button})
        return response

    def save_model(self, request: HttpRequest, obj: ProducerKey, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        key, secret = issue_key(
            obj.project,
            actor=actor_of(request),
            name=obj.name,
            scopes=form.cleaned_data["scopes"],
            requests_per_minute=obj.requests_per_minute,
            expires_at=obj.expires_at,
        )
        obj.pk, obj.prefix, obj.digest = key.pk, key.prefix, key.digest
        obj.shown_secret = secret

    def response_add(
        self, request: HttpRequest, obj: ProducerKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        return shown_once(
            self,
            request,
            title="Key issued",
            secret=obj.shown_secret,
            explains=f"The key of {obj.name} for project {obj.project_id}. Only its digest is stored.",
        )

    @admin.display(description="key")
    def prefix_shown(self, key: ProducerKey) -> SafeString:
        return format_html('<code class="qo-id">{}…</code>', key.prefix)

    @admin.display(description="what its jobs cost")
    def cost(self, key: ProducerKey) -> SafeString:
        address = f"{reverse('admin:ratelimits_spend_report')}?by=key&project={key.project_id}"
        return format_html('<a class="qo-link" href="{}">beside the other keys of {}</a>', address, key.project_id)

    @admin.display(description="scopes")
    def scopes_shown(self, key: ProducerKey) -> str:
        return ", ".join(key.scopes)

    @admin.display(description="a minute")
    def rate(self, key: ProducerKey) -> str:
        return "as set for all" if key.requests_per_minute is None else f"{key.requests_per_minute:,}"
