"""The API key that a call shows to its provider."""

from __future__ import annotations

from jobs.handlers.errors import ProviderError
from queueops.tenancy.secrets.credentials import OpenCredential


def key_of(service: str, credential: OpenCredential) -> str:
    """
    Return the API key.

    Raises:
        ProviderError: The credential is another service's, or has no key. Nothing was sent.
    """
    # Limits are kept by service: a payload must not use the key under a service with other limits, or with none.
    if credential.service != service:
        raise unusable(f"Credential {credential.name!r} is for {credential.service!r}, not for {service!r}.")
    api_key = credential.secret.get("api_key")
    if not isinstance(api_key, str) or not api_key.isascii() or not api_key.strip():
        raise unusable(f"Credential {credential.name!r} needs an api_key of ASCII characters.")
    return api_key.strip()


def unusable(message: str) -> ProviderError:
    """Return the error of a job whose credential cannot be used."""
    return ProviderError(None, message, code="credential_unusable", outcome="refused")
