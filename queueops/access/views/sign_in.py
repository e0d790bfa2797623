"""Signing in: the password, then the second factor of people who have or must have one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from queueops.access import pending
from queueops.access.forms import CodeForm, PasskeyForm, SignInForm
from queueops.access.services import passkeys, second_factor
from queueops.access.services.guard import Purpose, SignInLocked, guarded
from queueops.access.services.known_browsers import remember
from queueops.access.services.sessions import BY_PROVIDER, SECOND_FACTOR
from queueops.access.services.trail import tell_second_factor, tell_sign_in
from queueops.core.errors import QueueOpsError


class SignIn(LoginView):
    """The login page. Its address replaces the admin's own login."""

    template_name = "admin/access/sign_in.html"
    authentication_form = SignInForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "GET" and admin.site.has_permission(request):
            return HttpResponseRedirect(self.get_success_url())
        response = super().dispatch(request, *args, **kwargs)
        assert isinstance(response, HttpResponse)  # noqa: S101 (narrows the type)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        shared = admin.site.each_context(self.request)
        own = {
            "title": "Log in",
            "subtitle": None,
            "app_path": self.request.get_full_path(),
            "config": settings.QUEUEOPS,
        }
        return {**super().get_context_data(**kwargs), **shared, **own}

    def form_valid(self, form: Any) -> HttpResponse:
        return past_first_factor(self.request, form.get_user(), self.get_success_url())

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        return told_to_wait(response, form.locked) if form.locked else response


class SignOut(LogoutView):
    """Sign out of the admin; the next page offers to sign out at the provider."""

    template_name = "admin/access/signed_out.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        shared = admin.site.each_context(self.request)
        return {**super().get_context_data(**kwargs), **shared, "title": "Signed out", "config": settings.QUEUEOPS}


def past_first_factor(request: HttpRequest, user: User, goes_on_to: str, *, vouched: bool = False) -> HttpResponse:
    """
    Sign in somebody whose password was right, or whom the provider knows; or ask for a second factor first.

    Args:
        vouched: The provider has asked for a second factor.
    """
    has, needs = bool(second_factor.factors_of(user)), second_factor.is_required_of(user)
    if (has or needs) and not vouched:
        pending.begin(request, user, goes_on_to)
        return HttpResponseRedirect(reverse("access:code" if has else "access:second-factor"))
    login(request, user)
    if vouched:
        request.session[SECOND_FACTOR] = BY_PROVIDER
    tell_sign_in(user)
    return remember(HttpResponseRedirect(goes_on_to), request, user)


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
def ask_for_code(request: HttpRequest) -> HttpResponse:
    """Show the second step of signing in: a code, or a passkey."""
    user = pending.user_of(request)
    if user is None or not second_factor.factors_of(user):
        return HttpResponseRedirect(reverse("admin:login"))
    form: forms.Form = PasskeyForm(request.POST) if "credential" in request.POST else CodeForm(request.POST or None)
    locked: SignInLocked | None = None
    if form.is_valid():
        try:
            return sign_in(request, user, _show(request, user, form.cleaned_data))
        except QueueOpsError as error:
            form.add_error(None if "credential" in form.fields else "code", error.message)
            locked = error if isinstance(error, SignInLocked) else None
    context = {
        **admin.site.each_context(request),
        "title": "Second factor",
        "form": form if "code" in form.fields else CodeForm(),
        "faults": [*form.non_field_errors(), *form.errors.get("credential", [])],
        "has_app": second_factor.authenticator_of(user) is not None,
        "options": passkeys.ask_for(request, user),
    }
    response = TemplateResponse(request, "admin/access/code.html", context)
    return told_to_wait(response, locked) if locked else response


def _show(request: HttpRequest, user: User, given: dict[str, Any]) -> int | str:
    """
    Return which second factor was shown.

    Raises:
        WrongCode, WrongPasskey, SignInLocked, CredentialKeysMissing
    """
    if "credential" in given:
        owner = user.get_username()
        # Not behind the guard: a signature cannot be guessed, and others' wrong codes must not lock the owner's
        # passkey.
        passkey = passkeys.show(request, user, given["credential"])
        if passkey is None:
            guarded(Purpose.CODE, lambda: None, account=owner)
            raise passkeys.WrongPasskey
        tell_second_factor(user)
        return second_factor.factor_of_passkey(passkey.pk)
    shown = check_code(user, given["code"])
    if shown.recovery_codes_left is not None:
        messages.warning(request, f"Recovery codes left: {shown.recovery_codes_left}. Make new ones in time.")
    return shown.authenticator.pk


def check_code(user: User, code: str) -> second_factor.Shown:
    """
    Raises:
        WrongCode, SignInLocked, CredentialKeysMissing
    """
    authenticator = second_factor.authenticator_of(user)
    if authenticator is None:
        raise second_factor.WrongCode
    owner = user.get_username()
    shown = guarded(Purpose.CODE, lambda: second_factor.show(authenticator, code), account=owner)
    if shown is None:
        raise second_factor.WrongCode
    tell_second_factor(user)
    return shown


def sign_in(request: HttpRequest, user: User, factor: int | str) -> HttpResponse:
    """Sign in somebody who has shown both factors, and go where they wanted to."""
    goes_on_to = pending.goes_on_to(request)
    del request.session[pending.KEY]
    login(request, user)
    tell_sign_in(user)
    request.session[SECOND_FACTOR] = factor
    return remember(HttpResponseRedirect(goes_on_to), request, user)


def told_to_wait(response: HttpResponse, locked: SignInLocked) -> HttpResponse:
    response.status_code = locked.status
    response.headers["Retry-After"] = str(locked.retry_after)
    return response
