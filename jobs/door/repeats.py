"""Requests that come again: official clients repeat a POST whose answer did not come."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.db import connection


def digest_of(asked: Any) -> str:
    """By what a request is known when it comes again."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def lock_request(project_id: str, digest: str) -> None:
    """Let the repetition of a request wait for the transaction of the first one: it must find what that has made."""
    with connection.cursor() as cursor:
        name = f"queueops door {project_id} {digest}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
