"""The admin's page on which somebody changes their own password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponse

from queueops.access.forms import ChangePasswordForm

from .sign_in import told_to_wait


class ChangePassword(PasswordChangeView):
    form_class = ChangePasswordForm

    def get_form_kwargs(self) -> dict[str, Any]:
        request: HttpRequest = self.request
        return {**super().get_form_kwargs(), "request": request}

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        return told_to_wait(response, form.locked) if form.locked else response
