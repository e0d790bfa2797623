"""Secrets that are shown once, and the screens of issued keys and tokens."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from unfold.decorators import display

from .admin import QueueAdmin
from .columns import time_column
from .verbs import list_address, show_page


def shown_once(model_admin: Any, request: HttpRequest, *, title: str, secret: str, explains: str) -> HttpResponse:
    """
    Return the only page that ever shows a secret, from which people go on to the screen's list.

    No cache keeps the page, and it cannot be loaded again.
    """
    list(messages.get_messages(request))  # otherwise "added successfully" would turn up on a later page
    context = {"title": title, "secret": secret, "explains": explains, "goes_on_to": list_address(model_admin)}
    response = show_page(model_admin, request, "admin/kit/shown_once.html", context)
    response["Cache-Control"] = "no-store"
    return response


class IssuedAdmin(QueueAdmin):
    """
    The admin of issued keys and tokens. They are issued and revoked; their rights never change while somebody holds
    them.
    """

    is_deletable = False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @display(description="state", label={"usable": "success", "revoked": "danger", "expired": "warning"})  # type: ignore[untyped-decorator]
    def state(self, row: Any) -> str:
        if row.revoked_at:
            return "revoked"
        return "expired" if row.expires_at and row.expires_at <= timezone.now() else "usable"

    used = time_column("last used", "last_used_at")
    expires = time_column("expires", "expires_at")
