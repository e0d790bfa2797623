"""The page on which somebody sets up, renews or turns off their second factor."""

from __future__ import annotations

from typing import Any

import segno
from django import forms
from django.contrib import admin, messages
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from queueops.access import pending
from queueops.access.backend import may_use_password, sign_in_locked
from queueops.access.forms import AppCodeForm, CodeForm, PasswordForm
from queueops.access.models import Passkey
from queueops.access.services import second_factor
from queueops.access.services.guard import Purpose, SignInLocked, guarded
from queueops.access.services.sessions import SECOND_FACTOR, is_fresh, note_factors
from queueops.core.errors import QueueOpsError

from .sign_in import check_code, sign_in, told_to_wait

SETTING_UP = "second_factor_being_set_up"  # session key of the sealed secret, until a code made with it is shown
FORMS: dict[str, type[forms.Form]] = {"begin": PasswordForm, "confirm": AppCodeForm, "codes": CodeForm, "off": CodeForm}


class WrongPassword(QueueOpsError):
    """The password is wrong."""

    code = "wrong_password"
    status = 422


class SignInAgain(QueueOpsError):
    """Sign out and in again first: this is open for ten minutes after you have signed in."""

    code = "sign_in_again"
    status = 403


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
def second_factor_page(request: HttpRequest) -> HttpResponse:
    """A POST makes each change; a GET only shows the second factor."""
    user = person(request)
    if user is None:
        return redirect_to_login(request.get_full_path())
    step = request.POST.get("step", "")
    form = _form(request, step)
    locked: SignInLocked | None = None
    if form is not None and form.is_valid():
        try:
            done = _carry_out(request, user, step, form.cleaned_data)
        except QueueOpsError as error:
            form.add_error(next(iter(form.fields), None), error.message)
            locked = error if isinstance(error, SignInLocked) else None
        else:
            return done
    response = _page(request, user, **({f"{step}_form": form} if form else {}))
    return told_to_wait(response, locked) if locked else response


def person(request: HttpRequest) -> User | None:
    """Return who is signed in to the admin, or is about to be and still has to set up a second factor."""
    if admin.site.has_permission(request) and isinstance(request.user, User):
        return request.user
    user = pending.user_of(request)
    return user if user and not second_factor.factors_of(user) else None


def _form(request: HttpRequest, step: str) -> forms.Form | None:
    if step == "begin" and not gives_password(request):
        return forms.Form(request.POST)
    return FORMS[step](request.POST) if step in FORMS else None


def gives_password(request: HttpRequest) -> bool:
    """
    Whether a step asks for the password. Somebody about to be signed in gave it a moment ago; somebody from the
    provider may have none.
    """
    return request.user.is_authenticated and may_use_password(request.user)


def prove(request: HttpRequest, user: User, given: dict[str, Any]) -> None:
    """
    Make a signed-in person prove again who they are. Otherwise a stranger at an open session could change how that
    person signs in.

    Raises:
        WrongPassword, SignInLocked, SignInAgain
    """
    if not request.user.is_authenticated:
        return  # the person is being signed in: the password was checked a moment ago
    if not gives_password(request):
        if not is_fresh(request.session):
            raise SignInAgain
    elif not authenticate(request, username=user.get_username(), password=given["password"]):
        raise sign_in_locked.find(request) or WrongPassword()


def _carry_out(request: HttpRequest, user: User, step: str, given: dict[str, Any]) -> HttpResponse:
    actor = f"user:{user.pk}"
    if step == "begin":
        prove(request, user, given)
        _begin(request)
        return HttpResponseRedirect(reverse("access:second-factor"))
    if step == "confirm":
        return _confirm(request, user, given["code"], actor)
    check_code(user, given["code"])
    authenticator = second_factor.authenticator_of(user)
    assert authenticator is not None  # noqa: S101 (check_code has used it)
    if step == "codes":
        return _codes_page(request, second_factor.renew_recovery_codes(authenticator, actor=actor))
    second_factor.turn_off(user, actor=actor)
    note_factors(request.session, User.objects.get(pk=user.pk))
    messages.success(request, "Codes of the app are off.")
    return HttpResponseRedirect(reverse("access:second-factor"))


def _begin(request: HttpRequest) -> None:
    request.session[SETTING_UP] = second_factor.seal(second_factor.new_secret()).decode()


def _confirm(request: HttpRequest, user: User, code: str, actor: str) -> HttpResponse:
    secret = _being_set_up(request)
    if secret is None:
        raise second_factor.WrongCode("Begin again: the set-up is over.")

    def check() -> tuple[Any, list[str]] | None:
        try:
            return second_factor.set_up(user, secret, code, actor=actor)
        except second_factor.WrongCode:
            return None

    done = guarded(Purpose.CODE, check, account=user.get_username())
    if done is None:
        raise second_factor.WrongCode
    authenticator, codes = done
    del request.session[SETTING_UP]
    if request.user.is_authenticated:
        request.session[SECOND_FACTOR] = authenticator.pk
        return _codes_page(request, codes)
    return _codes_page(request, codes, goes_on_to=sign_in(request, user, authenticator.pk).headers["Location"])


def _being_set_up(request: HttpRequest) -> bytes | None:
    token = request.session.get(SETTING_UP)
    try:
        return second_factor.unseal(token.encode()) if token else None
    except second_factor.SecondFactorUnreadable:
        return None


def _page(request: HttpRequest, user: User, **given: Any) -> TemplateResponse:
    authenticator = second_factor.authenticator_of(user)
    secret = _being_set_up(request) if authenticator is None else None
    context = {
        **admin.site.each_context(request),
        "title": "Second factor",
        "layout": "admin/base_site.html" if request.user.is_authenticated else "unfold/layouts/unauthenticated.html",
        "authenticator": authenticator,
        "codes_left": authenticator.recovery_codes.filter(used_at=None).count() if authenticator else 0,
        "passkeys": Passkey.objects.filter(user=user).count(),
        "required": second_factor.is_required_of(user),
        "begin_form": PasswordForm() if gives_password(request) else forms.Form(),
        "confirm_form": AppCodeForm(),
        "codes_form": CodeForm(prefix=None, auto_id="codes_%s"),
        "off_form": CodeForm(auto_id="off_%s"),
        **given,
    }
    if secret:
        context["picture"] = _picture(second_factor.address_of(secret, user))
        context["typed"] = " ".join(_fours(second_factor.typed(secret)))
    return TemplateResponse(request, "admin/access/second_factor.html", context)


def _codes_page(request: HttpRequest, codes: list[str], *, goes_on_to: str = "") -> HttpResponse:
    context = {
        **admin.site.each_context(request),
        "title": "Recovery codes",
        "codes": codes,
        "goes_on_to": goes_on_to or reverse("access:second-factor"),
    }
    response = TemplateResponse(request, "admin/access/recovery_codes.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def _picture(address: str) -> str:
    drawn = segno.make(address, error="m").svg_inline(scale=5, border=4, dark="#000", light="#fff", omitsize=True)
    return mark_safe(drawn)  # noqa: S308 - segno draws paths; no text of the address is in the SVG


def _fours(text: str) -> list[str]:
    return [text[start : start + 4] for start in range(0, len(text), 4)]
