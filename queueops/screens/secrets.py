"""Secrets that are shown once, and the screens of issued keys and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action, display

from queueops.core.errors import QueueOpsError

from .admin import QueueAdmin
from .columns import time_column
from .verbs import actor_of, ask, list_address, mark, row_named, show_error, show_page


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


def change_secret_action(
    *,
    permission: str,
    explains: str,
    form_class: type[forms.Form],
    carry_out: Callable[..., tuple[str, str]],
    fits: Callable[[QuerySet[Any]], QuerySet[Any]] = lambda rows: rows,
    overrides: bool = False,
) -> Any:
    """
    Return the action of a row's page that asks, and then shows the row's new signing secret once.

    Args:
        carry_out: Takes the row, `actor` and the form's values; returns the new secret and what the former one does.
        fits: Returns the rows that have a secret.
        overrides: The former secret signs nothing from now on; the button says so.
    """

    def change_secret(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
        if not request.user.has_perm(permission):
            raise PermissionDenied
        rows = row_named(model_admin, request, object_id)
        row = None if rows is None else fits(rows).first()
        if row is None:
            raise Http404
        form = form_class(request.POST if "confirmed" in request.POST else None)
        if form.is_valid():
            try:
                secret, former = carry_out(row, actor=actor_of(request), **form.cleaned_data)
            except QueueOpsError as error:
                show_error(form, error)
            else:
                told = f"The new signing secret of {row}. {former or 'The former one signs no more.'}"
                return shown_once(model_admin, request, title="Secret changed", secret=secret, explains=told)
        button = {"overrides": True, "button": "Yes, change secret"} if overrides else {}
        page = reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_change", args=[row.pk])
        asked: dict[str, Any] = {"explains": explains, "named": [str(row)], "goes_back_to": page, **button}
        return ask(model_admin, request, title="Change secret", form=form, **asked)

    marked = mark(change_secret, needs=permission, fits=fits)
    return action(marked, description="Change secret", url_path="change-secret", icon="key")


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
