"""Django's sessions in the database, asked for no key that they cannot have."""

from __future__ import annotations

from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import VALID_KEY_CHARS

_KEY_CHARS = frozenset(VALID_KEY_CHARS)


class SessionStore(db.SessionStore):
    """A cookie is anybody's text: one that PostgreSQL cannot hold would end in an error of ours."""

    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and len(key) >= 8 and _KEY_CHARS.issuperset(key)  # noqa: PLR2004 - as Django has it
