"""The admin's screens, which are registered when the addresses are imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Model

import queueops.site.urls  # noqa: F401 - registers them


def registered() -> Iterator[tuple[type[Model], Any]]:
    yield from admin.site._registry.items()


def address_name(model: type[Model]) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"
