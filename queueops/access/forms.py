"""Forms for signing in, and for changing the password and the second factor."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables
from unfold.forms import AdminOwnPasswordChangeForm, AuthenticationForm
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from .backend import check_password_of, sign_in_locked
from .services.guard import SignInLocked


class SignInForm(AuthenticationForm):
    """Unfold's form, which also says when the account is locked."""

    request: HttpRequest

    @property
    def locked(self) -> SignInLocked | None:
        return sign_in_locked.find(self.request)

    def get_invalid_login_error(self) -> forms.ValidationError:
        if self.locked:
            return forms.ValidationError(self.locked.message, code=self.locked.code)
        error: forms.ValidationError = super().get_invalid_login_error()
        return error


class ChangePasswordForm(AdminOwnPasswordChangeForm):
    """Unfold's form, but the guard limits guesses of the old password: a stranger may sit at an open session."""

    def __init__(self, user: Any, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(user, *args, **kwargs)
        self.request = request

    @property
    def locked(self) -> SignInLocked | None:
        return sign_in_locked.find(self.request)

    @sensitive_variables("given")
    def clean_old_password(self) -> str:
        given: str = self.cleaned_data["old_password"]
        try:
            is_right = check_password_of(
                self.user.get_username(), lambda: self.user.check_password(given), self.request
            )
        except SignInLocked as locked:
            raise forms.ValidationError(locked.message, code=locked.code) from None
        if not is_right:
            raise forms.ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return given


class CodeForm(forms.Form):
    """A form that takes a code of the app, or a recovery code."""

    code = forms.CharField(
        max_length=40,
        widget=UnfoldAdminTextInputWidget(
            attrs={"autocomplete": "one-time-code", "autofocus": "", "autocapitalize": "off", "spellcheck": "false"}
        ),
        help_text="The six digits that your app shows now, or one of your recovery codes.",
    )


class AppCodeForm(CodeForm):
    """A form that takes a code of the app that is being set up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].help_text = "The six digits that your app shows now."


class PasswordForm(forms.Form):
    password = forms.CharField(
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "current-password"}),
        help_text="Yours, once more: whoever finds an open session must not be able to change how you sign in.",
    )


class PasskeyForm(forms.Form):
    """The browser's answer to a challenge; passkey.js fills it in."""

    credential = forms.JSONField(widget=forms.HiddenInput, error_messages={"required": "Your browser gave no passkey."})


class NewPasskeyForm(PasswordForm):
    field_order = ("name", "password")
    name = forms.CharField(
        max_length=60,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="How you will know it again: “office key”, “phone”.",
    )


class NamedPasskeyForm(forms.Form):
    """The form of a new passkey for somebody who has no password here."""

    name = NewPasskeyForm.base_fields["name"]
