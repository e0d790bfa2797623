"""Secrets that are shown once."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse


def shown_once(
    model_admin: Any, request: HttpRequest, *, title: str, secret: str, explains: str, goes_on_to: str
) -> HttpResponse:
    """The only page that ever shows a secret; no cache keeps it, and loading it again does not bring it back."""
    list(messages.get_messages(request))  # read, so that "added successfully" does not turn up on a later page
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": title,
        "secret": secret,
        "explains": explains,
        "goes_on_to": goes_on_to,
    }
    response = TemplateResponse(request, "admin/kit/shown_once.html", context)
    response["Cache-Control"] = "no-store"
    return response
