"""What is written to the audit trail, as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models.signals import post_save
from django.forms.models import model_to_dict

from queueops.audit.models import AuditEntry


@contextmanager
def entries_written() -> Iterator[list[dict[str, Any]]]:
    """The entries, oldest first, without those that were there before."""
    told: list[dict[str, Any]] = []

    def note(instance: AuditEntry, **_: Any) -> None:
        told.append(model_to_dict(instance))

    post_save.connect(note, sender=AuditEntry)
    try:
        yield told
    finally:
        post_save.disconnect(note, sender=AuditEntry)
