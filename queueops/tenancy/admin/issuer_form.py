"""The form of an issuer: it has either published keys, or a shared secret that is never shown again."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextInputWidget

from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.policy import OutboundPolicy, parse_target
from queueops.screens.forms import UnrenderedTextarea
from queueops.tenancy.callers.tokens import MIN_SECRET_BYTES, SECRET_ENTRY
from queueops.tenancy.models import USER_SCOPES, Issuer, default_user_scopes
from queueops.tenancy.secrets.credentials import seal

NO_KEYS: dict[str, Any] = {"jwks": [], "jwks_fetched_at": None, "jwks_tried_at": None, "jwks_error": ""}


class IssuerForm(forms.ModelForm):  # type: ignore[type-arg]
    audiences = SimpleArrayField(
        forms.CharField(max_length=200),
        widget=UnfoldAdminTextInputWidget,
        help_text="One of them must be in a token's aud. Separated by commas. Supabase: authenticated.",
    )
    scopes = forms.MultipleChoiceField(
        choices=[(scope.value, scope.label) for scope in USER_SCOPES],
        initial=default_user_scopes,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="What its users may do, each with what is their own. With submit they may have any kind of job "
        "carried out, with every credential of the project.",
    )
    new_secret = forms.CharField(
        label="Shared secret",
        required=False,
        widget=UnrenderedTextarea(attrs={"rows": 2, "class": "qo-code", "spellcheck": "false", "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stored = Issuer.objects.filter(pk=self.instance.pk).values_list("jwks_url", flat=True).first()
        self.has_secret = stored == ""
        self.known_url = stored
        kept = "Empty: the one stored stays as it is." if self.has_secret else "Stored encrypted and never shown again."
        self.fields["new_secret"].help_text = f"Where tokens are signed with HS256, instead of published keys. {kept}"
        self.written: dict[str, Any] = {}  # columns to save besides the form's fields

    def clean_issuer(self) -> str:
        given: str = self.cleaned_data["issuer"]
        if not given.isascii() or not given.isprintable() or " " in given:
            raise ValidationError("Only ASCII without spaces: tokens are compared with it character by character.")
        return given

    def clean_jwks_url(self) -> str:
        given: str = self.cleaned_data["jwks_url"]
        may_be_local = settings.QUEUEOPS.allow_loopback_targets
        if given and not given.startswith("https://") and not may_be_local:
            raise ValidationError("The address begins with https://, or anybody on the way could sign tokens.")
        if given:
            try:
                parse_target(given, policy=OutboundPolicy.of(allow_loopback=may_be_local))
            except QueueOpsError as error:
                raise ValidationError(error.message, code=error.code) from None
        return given

    def clean_new_secret(self) -> bytes | None:
        """Return the new secret, encrypted; None: the stored secret stays."""
        given: str = self.cleaned_data["new_secret"]
        if not given:
            return None
        if len(given.encode()) < MIN_SECRET_BYTES:
            raise ValidationError(f"At least {MIN_SECRET_BYTES} bytes: shorter ones can be guessed from a token.")
        try:
            return seal({SECRET_ENTRY: given})
        except QueueOpsError as error:
            raise ValidationError(error.message, code=error.code) from None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if "jwks_url" not in given or "new_secret" not in given:
            return given
        url, secret = given["jwks_url"], given["new_secret"]
        if bool(url) == bool(secret) and not (self.has_secret and not url):
            raise ValidationError("Give either the address of its keys or a shared secret.")
        if url != (self.known_url or ""):
            self.written |= NO_KEYS
        if url:
            self.written["secret"] = None
        elif secret:
            self.written |= {"secret": secret, "rotated_at": Now()}
        return given
