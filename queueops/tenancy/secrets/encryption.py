"""
The projects whose payloads are encrypted, and the columns of models that hold encrypted content.

Rows stay as they were written until `encrypt_payloads` rewrites them: plain and encrypted rows can both be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from queueops.core import sealing
from queueops.core.errors import QueueOpsError
from queueops.tenancy.models import Project

SETTING_KNOWN_SECONDS = 5.0  # how long after a change a process may still write by the old setting
DECRYPT = "tenancy.decrypt_project"

_known: dict[str, tuple[bool, float]] = {}


class CannotRead(QueueOpsError):
    """The encrypted content cannot be read here: nothing can be done with it, and it cannot be written again."""

    code = "payload_unreadable"
    status = 409


def note_encrypted(project_id: str, *, is_on: bool) -> None:
    """Remember a project's setting, which the caller has read from the database: `is_encrypted` then needs no query."""
    _known[project_id] = (is_on, time.monotonic() + SETTING_KNOWN_SECONDS)


def is_encrypted(project_id: str) -> bool:
    """Whether a project's payloads are sealed when written. The setting is read at most every SETTING_KNOWN_SECONDS."""
    is_on, until = _known.get(project_id, (False, 0.0))
    if time.monotonic() < until:
        return is_on
    is_on = Project.objects.filter(pk=project_id, encrypted=True).exists()
    note_encrypted(project_id, is_on=is_on)
    return is_on


def forget_encrypted() -> None:
    """Read the settings anew at the next call; call this after changing one."""
    _known.clear()


class Concealing:
    """
    Middleware, after SessionLimits: people with a session see encrypted content only with the permission for it.

    Callers with a key see the content: they sent it. People with a token have no cookie: `shown_to` conceals it then.
    The permission is looked up only when encrypted content is read, so that other requests cost no query.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return self._get_response(request)
        with sealing.opened_if(lambda: may_read_encrypted(request.user)):
            return self._get_response(request)


def may_read_encrypted(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether a user may read encrypted content. Without a signed-in user the caller has a key: other rules decide."""
    return not user.is_authenticated or bool(getattr(user, "has_perm", lambda _: False)(DECRYPT))


def shown_to(person: AbstractBaseUser | None) -> AbstractContextManager[None]:
    """In the block, a person sees encrypted content only with the permission; None, a caller with a key, sees it."""
    return sealing.opened_if(lambda: person is None or may_read_encrypted(person))


class SealedJSONField(models.JSONField):
    """
    JSON that is sealed, whole or in parts, if its project's payloads are encrypted. Reading opens it.

    Args:
        whole: Seal the whole value when a row is saved; otherwise the code that writes it seals the parts.
    """

    def __init__(self, *args: Any, whole: bool = False, **kwargs: Any) -> None:
        self.whole = whole
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if isinstance(value, str):
            value = sealing.shown_json(value)
        return super().from_db_value(value, expression, connection)

    def pre_save(self, model_instance: Any, add: bool) -> Any:  # noqa: FBT001 - Django's signature
        value = super().pre_save(model_instance, add)
        _refuse_stand_in(value)
        if not self.whole or value is None:
            return value
        # Reading opens tokens: otherwise somebody could send a token copied from a dump, and read its value.
        value = sealing.defused_value(value)
        return sealing.seal_value(value) if is_encrypted(model_instance.project_id) else value


class SealedTextField(models.TextField):  # type: ignore[type-arg]
    """Text that may hold parts sealed by the code that wrote it. Reading opens them."""

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str | None:
        return None if value is None else sealing.shown_text(value)

    def pre_save(self, model_instance: Any, add: bool) -> Any:  # noqa: FBT001 - Django's signature
        value = super().pre_save(model_instance, add)
        _refuse_stand_in(value)
        return value


def _refuse_stand_in(value: Any) -> None:
    """
    Refuse to store the text that stands in for a value that could not be shown: it would replace the value for good.
    """
    if isinstance(value, str) and value.startswith(sealing.STANDS_IN):
        raise CannotRead
