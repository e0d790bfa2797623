"""The page behind an invitation's link, on which its owner chooses a password and is signed in."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import INTERNAL_RESET_SESSION_TOKEN, PasswordResetConfirmView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse, reverse_lazy
from unfold.widgets import UnfoldAdminPasswordWidget

from queueops.access.services import invitations

from .sign_in import past_first_factor


class ChoosePasswordForm(SetPasswordForm):  # type: ignore[type-arg]
    def __init__(self, user: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(user, *args, **kwargs)
        for field in self.fields.values():
            field.widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})
        self.fields["new_password1"].label = "Password"
        self.fields["new_password2"].label = "The same once more"


class InvitedPage(PasswordResetConfirmView):
    """A GET does not use the link up: programs that check mail follow links. The link's secret moves to the session."""

    template_name = "admin/access/invited.html"
    form_class = ChoosePasswordForm
    token_generator = invitations.tokens
    success_url = reverse_lazy("admin:index")

    def get_user(self, uidb64: str) -> User | None:
        found = super().get_user(uidb64)
        return found if isinstance(found, User) and invitations.is_waited_for(found) else None

    def form_valid(self, form: Any) -> HttpResponse:
        token = self.request.session.pop(INTERNAL_RESET_SESSION_TOKEN)
        user = invitations.accept(form.user, token, form.cleaned_data["new_password1"])
        if user is None:
            return HttpResponseRedirect(self.request.get_full_path())  # the page then says that the link is not valid
        return past_first_factor(self.request, user, reverse("admin:index"))

    def render_to_response(self, context: Any, **kwargs: Any) -> HttpResponse:
        return super().render_to_response(context, status=200 if self.validlink else 410, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        request: HttpRequest = self.request
        own = {"title": "Welcome", "subtitle": None, "hours": invitations.LASTS_HOURS, "invited": self.user}
        return {**super().get_context_data(**kwargs), **admin.site.each_context(request), **own}
