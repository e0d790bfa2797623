"""The page on which somebody adds, names and removes passkeys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from queueops.access.forms import NamedPasskeyForm, NewPasskeyForm, PasskeyForm, PasswordForm
from queueops.access.models import Passkey
from queueops.access.services import passkeys, second_factor
from queueops.access.services.guard import SignInLocked
from queueops.access.services.sessions import note_factors
from queueops.core.errors import QueueOpsError

from .set_up import gives_password, person, prove
from .sign_in import sign_in, told_to_wait


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
def passkeys_page(request: HttpRequest) -> HttpResponse:
    """Show the passkeys and, before one is removed, the question whether to remove it. Only a POST changes anything."""
    user = person(request)
    if user is None:
        return redirect_to_login(request.get_full_path())
    step = request.POST.get("step", "")
    if step == "cancel":
        passkeys.give_up(request)
        return HttpResponseRedirect(reverse("access:passkeys"))
    form = _form(request, step)
    locked: SignInLocked | None = None
    if form is not None and form.is_valid():
        try:
            return _carry_out(request, user, step, form.cleaned_data)
        except QueueOpsError as error:
            form.add_error("password" if "password" in form.fields else None, error.message)
            locked = error if isinstance(error, SignInLocked) else None
    response = _page(request, user, **({f"{step}_form": form} if form else {}))
    return told_to_wait(response, locked) if locked else response


def _form(request: HttpRequest, step: str) -> forms.Form | None:
    if step == "add":
        return PasskeyForm(request.POST)
    kind = _kinds(request).get(step)
    return kind(request.POST) if kind else None


def _kinds(request: HttpRequest) -> dict[str, type[forms.Form]]:
    if gives_password(request):
        return {"begin": NewPasskeyForm, "remove": PasswordForm}
    return {"begin": NamedPasskeyForm, "remove": forms.Form}


def _carry_out(request: HttpRequest, user: User, step: str, given: dict[str, Any]) -> HttpResponse:
    actor, here = f"user:{user.pk}", HttpResponseRedirect(reverse("access:passkeys"))
    if step == "begin":
        prove(request, user, given)
        passkeys.begin_adding(request, user, given["name"])
        return here
    if step == "add":
        passkey = passkeys.add(request, user, given["credential"], actor=actor)
        if not request.user.is_authenticated:
            return sign_in(request, user, second_factor.factor_of_passkey(passkey.pk))
        messages.success(request, f"{passkey.name} is one of your passkeys now.")
    elif request.user.is_authenticated:
        prove(request, user, given)
        chosen = _chosen(request, user)
        removed = passkeys.remove(user, chosen.pk, actor=actor) if chosen else ""
        messages.success(request, f"{removed} is removed.") if removed else messages.info(request, "It was gone.")
    note_factors(request.session, User.objects.select_related("authenticator").get(pk=user.pk))
    return here


def _chosen(request: HttpRequest, user: User) -> Passkey | None:
    """Return the passkey that is to be removed."""
    given = request.POST.get("passkey") or request.GET.get("remove", "")
    return Passkey.objects.filter(user=user, pk=int(given)).first() if given.isascii() and given.isdigit() else None


def _page(request: HttpRequest, user: User, **given: Any) -> TemplateResponse:
    kinds = _kinds(request)
    context = {
        **admin.site.each_context(request),
        "title": "Passkeys",
        "layout": "admin/base_site.html" if request.user.is_authenticated else "unfold/layouts/unauthenticated.html",
        "passkeys": Passkey.objects.filter(user=user),
        "has_app": second_factor.authenticator_of(user) is not None,
        "being_added": passkeys.being_added(request),
        "chosen": _chosen(request, user),
        "begin_form": kinds["begin"](),
        "remove_form": kinds["remove"](),
        **given,
    }
    return TemplateResponse(request, "admin/access/passkeys.html", context)
