"""
Django's sessions in the database, stored under a digest of their keys: somebody who reads the table cannot take over a
session.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import VALID_KEY_CHARS
from django.utils import timezone

_KEY_CHARS = frozenset(VALID_KEY_CHARS)
_DIGEST_CHARACTERS = 40  # the column's width


class SessionStore(db.SessionStore):
    """Overrides only the synchronous methods; Django's asynchronous ones look for the plain key and find nothing."""

    def exists(self, session_key: str) -> bool:
        return super().exists(_stored(session_key))

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(_stored(key))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.session_key = _stored(row.session_key)
        return row

    def _get_session_from_db(self) -> Any:
        row = self.model.objects.filter(
            session_key=_stored(self.session_key or ""), expire_date__gt=timezone.now()
        ).first()
        if row is None:
            self._session_key = None
        return row

    def _validate_session_key(self, key: str | None) -> bool:
        # Anybody can send any text as cookie: a text that PostgreSQL cannot store would cause a server error.
        return key is not None and len(key) >= 8 and _KEY_CHARS.issuperset(key)  # noqa: PLR2004 - as Django has it


def _stored(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:_DIGEST_CHARACTERS]
