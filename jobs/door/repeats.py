"""Recognises requests that come again: official clients repeat a POST whose answer did not come."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.db import connection

CALL = "queueops.call"  # key in an ASGI scope: the call by a door that dashboards/live/turned_away.py reads


def digest_of(asked: Any) -> str:
    """Return the digest by which a repeated request is recognised."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def lock_request(project_id: str, digest: str) -> None:
    """Let a repeated request wait for the first one's transaction, so that it finds the first one's job or batch."""
    with connection.cursor() as cursor:
        name = f"queueops door {project_id} {digest}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
