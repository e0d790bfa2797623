"""Secrets that sign the webhooks we send: made here, shown once, stored encrypted like credentials."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from cryptography.fernet import InvalidToken

from .credentials import CredentialUnreadable, seal, unseal

SIGNING_SECRET_BYTES = 32
ENTRY = "signing_secret"
# Forms do not load these columns: otherwise saving a form could overwrite a rotated secret with the old token.
WRITTEN_BY_ROTATION = ("secret", "rotated_at")


def new_signing_secret() -> tuple[str, bytes]:
    """
    Returns:
        The secret in the form that receivers expect (Standard Webhooks), and its encrypted form to store.

    Raises:
        CredentialKeysMissing
    """
    text = "whsec_" + base64.b64encode(secrets.token_bytes(SIGNING_SECRET_BYTES)).decode()
    return text, seal_signing_secret(text)


def seal_signing_secret(text: str) -> bytes:
    """
    Raises:
        CredentialKeysMissing
    """
    return seal({ENTRY: text})


def open_signing_secret(row: Any, *, column: str = "secret") -> str:
    """
    Args:
        row: A webhook or alert route.
        column: Which of its secrets.

    Raises:
        CredentialKeysMissing, CredentialUnreadable
    """
    try:
        return str(unseal(bytes(getattr(row, column)))[ENTRY])
    except InvalidToken:
        raise CredentialUnreadable(
            f"No key in QUEUEOPS_CREDENTIAL_KEYS opens the signing secret of {row}. "
            "Put back the key it was encrypted with, or switch it off and add another.",
            credential=str(row),
        ) from None
