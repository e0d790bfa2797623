"""Credentials of providers: their secrets go in and never come out."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters
from unfold.widgets import UnfoldAdminTextInputWidget

from queueops.audit.audited import AuditedMixin
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.notify import Channel, notify
from queueops.screens import formatting
from queueops.screens.admin import LabelledInline
from queueops.screens.forms import UnrenderedTextarea
from queueops.tenancy.credential_pools import pools, refusals
from queueops.tenancy.credential_pools.http_use import MAX_HOSTS, is_among, read_host, why_not_shown
from queueops.tenancy.models import Credential, CredentialPool, CredentialSetting
from queueops.tenancy.secrets.credentials import CHECKS, CredentialKeysMissing, parse_secret, seal, unseal

HTTP_USE = ("hosts", "placement", "placement_name", "oauth_scopes")
AUDITED = ("name", "service", "quota_project", "quota_user", "base_url", *HTTP_USE)
SHAPES = (
    'A JSON object: {"api_key": "…"}, {"access_token": "…"}, {"username": "…", "password": "…"} or the key file of a'
    " Google service account."
)


def cleaned_hosts(given: list[str]) -> list[str]:
    """
    Raises:
        ValidationError: A text is no host, or there are too many hosts.
    """
    if len(given) > MAX_HOSTS:
        raise ValidationError(f"At most {MAX_HOSTS} hosts.")
    try:
        return list(dict.fromkeys(read_host(host) for host in given))
    except ValueError as error:
        raise ValidationError(str(error)) from None


class CredentialForm(forms.ModelForm):  # type: ignore[type-arg]
    new_secret = forms.CharField(
        label="Secret",
        required=False,
        widget=UnrenderedTextarea(
            attrs={"rows": 8, "class": "qo-code", "spellcheck": "false", "autocomplete": "off", "autocapitalize": "off"}
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        is_new = self.instance.pk is None
        kept = "It is stored encrypted and never shown again." if is_new else "Empty: the one stored stays as it is."
        self.fields["new_secret"].required = is_new
        self.fields["new_secret"].help_text = f"{SHAPES} {kept}"

    def clean_new_secret(self) -> bytes | None:
        """Return the new secret, encrypted; None: the stored secret stays."""
        given = self.cleaned_data["new_secret"]
        if not given:
            return None
        try:
            return seal(parse_secret(given))
        except QueueOpsError as error:
            raise ValidationError(error.message, code=error.code) from None

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if CredentialPool.objects.filter(name=name).exists():
            raise ValidationError("A pool of credentials has this name: a payload could mean either.")
        return name

    def clean_quota_project(self) -> str:
        given: str = self.cleaned_data["quota_project"]
        if given.startswith(pools.MARK):
            raise ValidationError(f"{pools.MARK} begins what stands for pools of credentials.")
        if not given and self.instance.pk and self.instance.memberships.exists():
            raise ValidationError("It is in a pool, whose members count apart: name whom the provider counts.")
        return given

    def clean_service(self) -> str:
        given: str = self.cleaned_data["service"]
        others = self.instance.memberships.exclude(pool__service=given) if self.instance.pk else None
        if others and (other := others.first()):
            raise ValidationError(f"It is in the pool {other.pool}, which is of {other.pool.service}.")
        return given

    def clean_base_url(self) -> str:
        given: str = self.cleaned_data["base_url"]
        parts = urlsplit(given)
        if given and parts.scheme not in {"http", "https"}:
            raise ValidationError("The address begins with http:// or https://.")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValidationError("The address has no user, password, query or fragment: it is shown and audited.")
        return given

    def clean_hosts(self) -> list[str]:
        hosts = cleaned_hosts(self.cleaned_data["hosts"])
        for member in self.instance.memberships.select_related("pool") if self.instance.pk else ():
            if lost := [host for host in member.pool.hosts if not is_among(host, hosts)]:
                raise ValidationError(f"The pool {member.pool} sends it to {', '.join(lost)}.")
        return hosts

    def clean_placement_name(self) -> str:
        return str(self.cleaned_data["placement_name"]).strip()

    def clean(self) -> dict[str, Any]:
        """Check that http.request can send the secret in the chosen placement."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not given.get("hosts") or self.errors:
            return given
        try:
            secret = unseal(given["new_secret"] or bytes(self.instance.secret))
        except (InvalidToken, CredentialKeysMissing):
            return given  # manage.py doctor reports it
        field, fault = why_not_shown(given["placement"], given["placement_name"], secret, given["hosts"])
        if fault:
            self.add_error(field, fault)
        return given


class SettingInline(LabelledInline):
    model = CredentialSetting
    fields = ("model", "takes", "how")
    readonly_fields = ("how",)
    verbose_name_plural = "What its server takes"

    @admin.display(description="how it is known")
    def how(self, setting: CredentialSetting) -> SafeString | str:
        if not setting.pk:
            return formatting.NOTHING
        if not setting.is_learned:
            return format_html("by hand, {}", formatting.ago(setting.created_at))
        where = setting.base_url or "the public address"
        return format_html("learned {} at {}: {}", formatting.ago(setting.created_at), where, setting.reason)


@admin.register(Credential)
class CredentialAdmin(AuditedMixin):
    form = CredentialForm
    inlines = (SettingInline,)
    list_display = ("name", "service", "used_by", "counted_as", "encrypted")
    fixed_fields = ("name",)  # payloads and unfinished jobs name it
    list_filter = ("service",)
    search_fields = ("name", "service")
    search_help_text = "A part of its name or service"
    autocomplete_fields = ("projects",)
    fieldsets = (
        (None, {"fields": ("name", "service", "projects", "new_secret")}),
        (
            "Whom the provider counts",
            {
                "fields": ("quota_project", "quota_user"),
                "description": (
                    "Limits count under these names. Credentials with the same names share their quotas. A secret is"
                    " one user to its provider, whichever user a job is for: without a quota user, limits for each user"
                    " count the jobs' users apart, and all of them together may pass the one quota they share."
                ),
            },
        ),
        ("Where it is used", {"fields": ("base_url",)}),
        (
            "Calls of any HTTP API",
            {
                "fields": HTTP_USE,
                "description": (
                    "Jobs of the kind http.request may name it, too. It is sent to these hosts alone, over https, and"
                    " no redirect takes it elsewhere."
                ),
            },
        ),
    )

    def audit_targets(self, row: Credential) -> list[str]:
        return [f"credential {row.name}"]

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("projects", "memberships__pool").defer("secret")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "base_url":
            kwargs |= {"assume_scheme": "https", "label": "Base URL"}
        if db_field.name == "hosts":
            kwargs["widget"] = UnfoldAdminTextInputWidget()
        if db_field.name == "projects":
            kwargs["help_text"] = "Who may name it. Empty: nobody; a pool that it is in has projects of its own."
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @method_decorator(sensitive_post_parameters("new_secret"))
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response: HttpResponse = super().changeform_view(request, *args, **kwargs)
        return response

    def save_model(self, request: HttpRequest, obj: Credential, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        sealed = form.cleaned_data["new_secret"]
        if sealed is None:
            # Only the form's fields: otherwise this would overwrite a secret that a rotation writes meanwhile.
            obj.save(update_fields=[name for name in AUDITED if name != "name"])
            return
        obj.secret = sealed
        if change:
            obj.rotated_at = Now()
            refusals.forgive([obj.name])  # providers refused the earlier secret
            pools.forget()
            notify(Channel.READY)
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)
        for check in CHECKS:
            if warning := check(form.instance):
                self.message_user(request, warning, messages.WARNING)

    def audited(self, obj: Credential) -> dict[str, Any]:
        projects = sorted(obj.projects.values_list("pk", flat=True))
        settings = [[one.model, one.takes] for one in CredentialSetting.objects.filter(credential=obj)]
        told = {"settings": settings} if settings else {}
        return {**{name: getattr(obj, name) for name in AUDITED}, "projects": projects, **told}

    def audited_of_form(self, form: Any) -> dict[str, Any]:
        return {"secret_replaced": form.cleaned_data["new_secret"] is not None}

    @admin.display(description="used by")
    def used_by(self, credential: Credential) -> str:
        pooled = [f"pool {member.pool}" for member in credential.memberships.all()]
        return ", ".join([project.pk for project in credential.projects.all()] + pooled) or "nobody"

    @admin.display(description="a job counts for")
    def counted_as(self, credential: Credential) -> str:
        return f"{credential.quota_project or 'its project'}, {credential.quota_user or 'its user'}"

    @admin.display(description="encrypted")
    def encrypted(self, credential: Credential) -> SafeString | str:
        return formatting.ago(credential.rotated_at or credential.created_at)
