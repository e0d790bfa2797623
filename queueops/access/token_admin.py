"""The admin's page of personal tokens: everybody with a role issues and revokes their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.access.models import PersonalToken
from queueops.access.services.personal_tokens import MAX_TOKEN_DAYS, issue_token, revoke_tokens
from queueops.core.errors import QueueOpsError
from queueops.screens.forms import ReasonForm
from queueops.screens.secrets import IssuedAdmin, shown_once
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, on_one, on_selected

REVOKE_OTHERS = "access.revoke_personaltoken"


class OthersToken(QueueOpsError):
    """It is somebody else's token: its owner or an administrator revokes it."""

    code = "others_token"
    status = 403


def _revoke(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    """
    Raises:
        OthersToken: A token is somebody else's, and the person may not revoke it. Nothing was revoked.
    """
    asks = User.objects.get(pk=actor.removeprefix("user:"))
    if not asks.has_perm(REVOKE_OTHERS) and PersonalToken.objects.filter(pk__in=ids).exclude(user=asks).exists():
        raise OthersToken
    revoked = revoke_tokens(ids, actor=actor, reason=reason)
    return VerbOutcome(revoked, len(ids) - revoked)


REVOKE = Verb(
    name="revoke",
    permission="access.add_personaltoken",  # for one's own tokens; `_revoke` also checks for other people's tokens
    label="Revoke",
    done="revoked",
    explains="Requests with the token are refused from the next one on. This cannot be taken back.",
    icon="key_off",
    applies=lambda rows: rows.filter(revoked_at=None),
    unfit="revoked before",
    carry_out=_revoke,
    form=ReasonForm,
    overrides=True,
)


class PersonalTokenForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = PersonalToken
        fields = ("name", "project", "expires_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "expires_at" in self.fields:
            self.fields["expires_at"].initial = timezone.now() + timedelta(days=30)

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if not timezone.now() < expires_at <= timezone.now() + timedelta(days=MAX_TOKEN_DAYS):
            raise forms.ValidationError(f"In the future, and at most {MAX_TOKEN_DAYS} days ahead.")
        return expires_at


@admin.register(PersonalToken)
class PersonalTokenAdmin(IssuedAdmin):
    form = PersonalTokenForm
    list_display = ("prefix_shown", "user", "name", "opens", "state", "used", "expires")
    list_select_related = ("user",)
    fields = ("name", "project", "expires_at")
    readonly_fields = ("prefix_shown", "whose", "opens", "state", "used", "expires")
    actions = ("revoke_selected",)
    actions_detail = ("revoke",)
    empty_title = "There are no personal tokens."
    empty_hint = "Add one for an assistant that works for you. It may do what you may do, and acts in your name."

    revoke_selected, revoke = on_selected(REVOKE), on_one(REVOKE)

    def get_fields(self, request: HttpRequest, obj: PersonalToken | None = None) -> Sequence[str]:
        return ("name", *self.readonly_fields) if obj else self.fields

    def audit_targets(self, row: PersonalToken) -> list[str]:
        return [f"personal token {row.prefix}"]

    def save_model(self, request: HttpRequest, obj: PersonalToken, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        token, secret = issue_token(
            request.user,  # type: ignore[arg-type]  # a signed-in user
            name=obj.name,
            expires_at=obj.expires_at,
            project_id=obj.project_id,
            actor=actor_of(request),
        )
        obj.pk, obj.prefix = token.pk, token.prefix
        obj.shown_secret = secret

    def response_add(
        self, request: HttpRequest, obj: PersonalToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        return shown_once(
            self,
            request,
            title="Token issued",
            secret=obj.shown_secret,
            explains=f"Your token {obj.name}. Only its digest is stored. Whoever has it acts in your name.",
        )

    @admin.display(description="token")
    def prefix_shown(self, token: PersonalToken) -> SafeString:
        return format_html('<code class="qo-id">{}…</code>', token.prefix)

    @admin.display(description="user")
    def whose(self, token: PersonalToken) -> str:
        return str(token.user)  # not a link: who may see tokens need not see accounts

    @admin.display(description="opens")
    def opens(self, token: PersonalToken) -> str:
        return token.project_id or "all projects"
