"""The key that a call shows."""

from __future__ import annotations

from jobs.handlers.errors import ProviderError
from queueops.tenancy.secrets.credentials import OpenCredential


def key_of(service: str, credential: OpenCredential) -> str:
    """
    Return the API key.

    Raises:
        ProviderError: The credential is another service's, or has no key. Nothing was sent.
    """
    # The service names the limits: a payload may not choose another one's, or none's, for the same key.
    if credential.service != service:
        raise unusable(f"Credential {credential.name!r} is for {credential.service!r}, not for {service!r}.")
    api_key = credential.secret.get("api_key")
    if not isinstance(api_key, str) or not api_key.isascii() or not api_key.strip():
        raise unusable(f"Credential {credential.name!r} needs an api_key of ASCII characters.")
    return api_key.strip()


def unusable(message: str) -> ProviderError:
    """Return the failure of a job whose credential does not serve."""
    return ProviderError(None, message, code="credential_unusable", outcome="refused")
