"""Secrets that sign the webhooks we send: made here, shown once, stored encrypted like credentials."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from cryptography.fernet import InvalidToken
from django.db.migrations import RunPython

from .credentials import CredentialKeysMissing, CredentialUnreadable, seal, unseal

SIGNING_SECRET_BYTES = 32
ENTRY = "signing_secret"


def new_signing_secret() -> tuple[str, bytes]:
    """
    Returns:
        The secret as receivers want it (Standard Webhooks), and what is stored.

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


def open_signing_secret(row: Any) -> str:
    """
    Args:
        row: A webhook or alert route.

    Raises:
        CredentialKeysMissing, CredentialUnreadable
    """
    try:
        return str(unseal(bytes(row.secret))[ENTRY])
    except InvalidToken:
        raise CredentialUnreadable(
            f"No key in QUEUEOPS_CREDENTIAL_KEYS opens the signing secret of {row}. "
            "Put back the key it was encrypted with, or switch it off and add another.",
            credential=str(row),
        ) from None


def seal_texts(model: str) -> RunPython:
    """For migrations: fill `sealed` from the texts in `secret`; backwards `secret` from `sealed`."""

    def forwards(apps: Any, editor: Any) -> None:
        rows = apps.get_model(model).objects
        for pk, text in rows.exclude(secret="").values_list("pk", "secret"):
            try:
                rows.filter(pk=pk).update(sealed=seal_signing_secret(text))
            except CredentialKeysMissing:
                raise CredentialKeysMissing(
                    f"The signing secrets in {model} are to be encrypted: set QUEUEOPS_CREDENTIAL_KEYS for this and"
                    " every process (docs/how-to/credentials.md), then migrate again. Nothing was changed."
                ) from None

    def backwards(apps: Any, editor: Any) -> None:
        rows = apps.get_model(model).objects
        for row in rows.exclude(sealed=None):
            rows.filter(pk=row.pk).update(secret=str(unseal(bytes(row.sealed))[ENTRY]))

    return RunPython(forwards, backwards)
