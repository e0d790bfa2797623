"""Issuers of end users' tokens: whom a project trusts, the keys in use, and a trial of tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters
from unfold.decorators import display

from queueops.audit import trail
from queueops.audit.audited import AuditedMixin
from queueops.screens import formatting
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import ConfirmForm, UnrenderedTextarea
from queueops.screens.verbs import Verb, VerbOutcome, on_one
from queueops.tenancy.callers.issuer_keys import ALGORITHMS, fetch_keys
from queueops.tenancy.callers.issuers import read_issuer
from queueops.tenancy.callers.tokens import (
    MAX_TOKEN_CHARACTERS,
    ExpiredToken,
    InvalidToken,
    VerifiedToken,
    check_token,
    read_unverified,
)
from queueops.tenancy.models import Issuer

from .issuer_form import IssuerForm

AUDITED = ("project_id", "name", "issuer", "audiences", "jwks_url", "leeway_seconds", "scopes", "enabled")
SHOWN_CLAIMS = ("iss", "aud", "sub", "exp", "nbf", "iat")
MAX_CLAIM_LENGTH = 200


class TokenForm(ConfirmForm):
    token = forms.CharField(
        widget=UnrenderedTextarea(attrs={"rows": 6, "class": "qo-code", "spellcheck": "false", "autocomplete": "off"}),
        max_length=MAX_TOKEN_CHARACTERS,
        help_text="As an app sends it, without Bearer. It is checked and forgotten.",
    )


def _fetch(ids: Sequence[int], *, actor: str) -> VerbOutcome:
    [issuer] = Issuer.objects.filter(pk__in=ids).exclude(jwks_url="") or [None]
    if issuer is None:
        return VerbOutcome(0, len(ids))
    count = fetch_keys(issuer.pk, issuer.jwks_url)
    trail.record(
        actor=actor,
        action="fetch_keys",
        target=f"issuer {issuer.name}",
        after={"keys": count},
        project_id=issuer.project_id,
    )
    return VerbOutcome(1, report=f"{count} keys fetched, in use from the next request on.")


def _try_token(ids: Sequence[int], *, actor: str, token: str) -> VerbOutcome:
    issuer = read_issuer(ids[0])
    if issuer is None:
        return VerbOutcome(0, 1)
    try:
        verified = check_token(token, issuer)
    except InvalidToken as fault:
        raise InvalidToken(f"{fault.message}{_told(token)}", **fault.details) from None
    except ExpiredToken as fault:
        raise ExpiredToken(f"{fault.message}{_told(token)}") from None
    return VerbOutcome(1, report=_found(verified, ids[0]))


def _told(token: str) -> str:
    """Return the token's header and claims in words, so that a person finds what is wrong with the token."""
    try:
        header, claims = read_unverified(token)
    except InvalidToken:
        return ""
    said = {name: header.get(name) for name in ("alg", "kid")} | {name: claims.get(name) for name in SHOWN_CLAIMS}
    parts = [f"{name} {json.dumps(value)[:MAX_CLAIM_LENGTH]}" for name, value in said.items() if value is not None]
    return f" It says: {', '.join(parts)}. Now it is {int(time.time())}."


def _found(verified: VerifiedToken, issuer_id: int) -> str:
    left = int(verified.expires_at - time.time())
    off = "" if Issuer.objects.filter(pk=issuer_id, enabled=True).exists() else " But the issuer is turned off."
    return f"The token is good for {formatting.duration(left)}: user {verified.user_id}, sub {verified.subject}.{off}"


FETCH = Verb(
    name="fetch",
    permission="tenancy.try_issuer",
    label="Fetch keys now",
    done="asked",
    explains="Asks the issuer for its public keys, whenever that was done last. Those in use stay if it fails.",
    icon="sync",
    applies=lambda rows: rows.exclude(jwks_url=""),
    unfit="without published keys",
    carry_out=_fetch,
)
TRY = Verb(
    name="try",
    permission="tenancy.try_issuer",
    label="Test a token",
    done="tested",
    explains="Says whether a token of this issuer would be accepted and for whom, or what of it is wrong.",
    icon="fact_check",
    carry_out=_try_token,
    form=TokenForm,
)


@admin.register(Issuer)
class IssuerAdmin(AuditedMixin):
    form = IssuerForm
    list_display = ("name", "of_project", "issuer", "signed_with", "scopes_shown", "state", "keys_state")
    list_filter = (ProjectFilter,)
    search_fields = ("name", "issuer")
    search_help_text = "A part of its name, or of the issuer"
    readonly_fields = ("keys",)
    # Neither may change: users' ids derive from the issuer's name, and users' rows belong to the project.
    fixed_fields = ("project", "issuer")
    actions_detail = ("fetch", "try_token")
    fieldsets = (
        (None, {"fields": ("project", "name", "enabled")}),
        ("Its tokens", {"fields": ("issuer", "audiences", "leeway_seconds")}),
        (
            "How they are signed",
            {
                "fields": ("jwks_url", "new_secret", "keys"),
                "description": "With keys that it publishes (RS256, ES256), or with a secret that both know (HS256).",
            },
        ),
        ("What its users may do", {"fields": ("scopes",)}),
    )

    fetch = on_one(FETCH)
    try_token = method_decorator(sensitive_post_parameters("token"))(on_one(TRY))

    def audit_targets(self, row: Issuer) -> list[str]:
        return [f"issuer {row.name}"]

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("secret")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "jwks_url":
            kwargs |= {"assume_scheme": "https", "label": "Address of its keys (JWKS)"}
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @method_decorator(sensitive_post_parameters("new_secret"))
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response: HttpResponse = super().changeform_view(request, *args, **kwargs)
        return response

    def save_model(self, request: HttpRequest, obj: Issuer, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        for name, value in form.written.items():
            setattr(obj, name, value)
        # Only the form's columns: otherwise this would overwrite keys fetched, or a secret rotated, meanwhile.
        obj.save(
            update_fields=[*(name for name in AUDITED if name in form.cleaned_data), *form.written] if change else None
        )

    def audited(self, obj: Issuer) -> dict[str, Any]:
        return {name: getattr(obj, name) for name in AUDITED}

    def audited_of_form(self, form: Any) -> dict[str, Any]:
        return {"secret_replaced": form.cleaned_data["new_secret"] is not None}

    @admin.display(description="signed with")
    def signed_with(self, issuer: Issuer) -> str:
        return "published keys" if issuer.jwks_url else "shared secret"

    @admin.display(description="users may")
    def scopes_shown(self, issuer: Issuer) -> str:
        return ", ".join(issuer.scopes)

    @display(description="state", label={"on": "success", "off": "warning"})  # type: ignore[untyped-decorator]
    def state(self, issuer: Issuer) -> str:
        return "on" if issuer.enabled else "off"

    @admin.display(description="keys")
    def keys_state(self, issuer: Issuer) -> SafeString | str:
        if not issuer.jwks_url:
            return "none"
        if issuer.jwks_fetched_at is None:
            return issuer.jwks_error or "not needed yet"
        failed = " (the last try failed)" if issuer.jwks_error else ""
        return format_html("{}, fetched {}{}", len(issuer.jwks), formatting.ago(issuer.jwks_fetched_at), failed)

    @admin.display(description="its public keys")
    def keys(self, issuer: Issuer) -> SafeString | str:
        if not issuer.jwks_url:
            return "None: its tokens are signed with the shared secret." if issuer.pk else "Fetched when first needed."
        named = [(jwk.get("kid", "without a name"), ALGORITHMS[jwk["kty"]]) for jwk in issuer.jwks]
        shown = format_html_join(", ", '<code class="qo-id">{}</code> {}', named)
        return format_html("{} · {} {}", self.keys_state(issuer), shown, issuer.jwks_error)
