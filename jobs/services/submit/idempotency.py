"""Answering a repeated request with the first answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from jobs.models import IdempotencyRecord
from queueops.core.errors import IdempotencyKeyReused
from queueops.core.sealing import defused_value, seal_value
from queueops.tenancy.secrets.encryption import CannotRead, is_encrypted


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    status_code: int
    answer: dict[str, Any]
    replayed: bool


def answer_once(
    *, project_id: str, key: str, body_digest: str, effect: Callable[[], tuple[int, dict[str, Any]]]
) -> StoredAnswer:
    """
    Carry out `effect` and store its answer in one transaction, or return what is stored.

    A parallel request with the same key waits at the unique index until the first one commits, and then finds its
    answer. If the first fails, nothing of it stays, and the second carries out the effect. Errors are not stored.

    Args:
        key: The client's Idempotency-Key, unique in the project.
        body_digest: The digest of everything that decides what the request means.

    Raises:
        IdempotencyKeyReused: The key came with another body before.
        CannotRead: The stored answer is encrypted, and the caller may not read it, or its key is not set here.
    """
    with transaction.atomic():
        record, is_first = _claim_key(project_id, key, body_digest)
        if record.request_digest != body_digest:
            raise IdempotencyKeyReused(f"Idempotency-Key {key!r} was used for another request.", idempotency_key=key)
        if isinstance(record.answer, str):  # a text stands in for what is encrypted
            raise CannotRead(
                "This was done before, and its answer is encrypted: you may not read it, or its key is not set."
            )
        if not is_first and record.status_code is not None:
            return StoredAnswer(record.status_code, record.answer or {}, replayed=True)
        status_code, answer = effect()
        answer = defused_value(answer)  # reading decrypts tokens: the answer may repeat one that the caller sent
        kept = seal_value(answer) if is_encrypted(project_id) else answer
        IdempotencyRecord.objects.filter(pk=record.pk).update(status_code=status_code, answer=kept)
        return StoredAnswer(status_code, answer, replayed=False)


def _claim_key(project_id: str, key: str, body_digest: str) -> tuple[IdempotencyRecord, bool]:
    fresh = IdempotencyRecord(project_id=project_id, key=key, request_digest=body_digest)
    IdempotencyRecord.objects.bulk_create([fresh], ignore_conflicts=True)
    record = IdempotencyRecord.objects.select_for_update().get(project_id=project_id, key=key)
    return record, record.status_code is None
