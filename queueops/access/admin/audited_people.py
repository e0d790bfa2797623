"""Accounts and roles, each change in the audit trail. The screens themselves are tenancy's, which knows no trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from queueops.audit import trail
from queueops.screens.verbs import actor_of

KEPT = ("username", "email", "is_active", "is_staff", "is_superuser")


class AuditedPeopleMixin:
    """Records after the many-to-many fields are saved: what a person may do is in them."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        before = type(obj).objects.get(pk=obj.pk) if change else None
        form.told_before = told_of(before) if before else None
        super().save_model(request, obj, form, change)  # type: ignore[misc]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)  # type: ignore[misc]
        _record(request, "change" if change else "add", form.instance, before=form.told_before)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        _record(request, "delete", obj, before=told_of(obj), gone=True)
        super().delete_model(request, obj)  # type: ignore[misc]

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for obj in queryset:
            _record(request, "delete", obj, before=told_of(obj), gone=True)
        super().delete_queryset(request, queryset)  # type: ignore[misc]

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponseBase:  # noqa: A002 - Django's
        response: HttpResponse = super().user_change_password(request, id, form_url)  # type: ignore[misc]
        if request.method == "POST" and response.status_code == 302:  # noqa: PLR2004 - done
            trail.record(actor=actor_of(request), action="set_password", target=f"user {id}")
        return response


def told_of(obj: User | Group) -> Mapping[str, Any]:
    """What the trail keeps; no password."""
    if isinstance(obj, Group):
        return {"name": obj.name, "permissions": _codenames(obj.permissions)}
    return {
        **{name: getattr(obj, name) for name in KEPT},
        "groups": sorted(obj.groups.values_list("name", flat=True)),
        "permissions": _codenames(obj.user_permissions),
    }


def _codenames(permissions: Any) -> list[str]:
    named = permissions.values_list("content_type__app_label", "codename")
    return sorted(f"{app}.{codename}" for app, codename in named)


def _record(request: HttpRequest, verb: str, obj: Any, *, before: Any, gone: bool = False) -> None:
    noun = obj._meta.model_name  # noqa: SLF001 - Django's name for it
    trail.record(
        actor=actor_of(request),
        action=f"{verb}_{noun}",
        target=f"{noun} {obj.pk}",
        before=before,
        after=None if gone else told_of(obj),
    )


for model in (User, Group):
    screen = type(admin.site.get_model_admin(model))
    admin.site.unregister(model)
    admin.site.register(model, type(f"Audited{screen.__name__}", (AuditedPeopleMixin, screen), {}))
