"""The credential of an `http.request`: which hosts see it, and how it is placed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote

from yarl import URL

from jobs.handlers.errors import ProviderError
from jobs.handlers.google.auth import access_token, forget_token
from queueops.core.outbound.origin_secret import OriginSecret
from queueops.tenancy.credential_pools.http_use import is_service_account, secret_of, why_not_at, why_not_shown
from queueops.tenancy.models import Placement
from queueops.tenancy.secrets.credentials import OpenCredential, UsableCredential

from .payload import HttpRequest

GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def credential_faults(request: HttpRequest, credential: UsableCredential | OpenCredential) -> Mapping[str, str]:
    """Return why a payload and a credential do not fit together, by field of the payload."""
    if fault := why_not_at(request.url, credential.hosts):
        return {"url": fault}
    if credential.placement == Placement.QUERY:
        if credential.placement_name in URL(request.url).query:
            return {"url": f"the credential sets {credential.placement_name} in the query; leave it out"}
        return {}
    own = credential.placement_name if credential.placement == Placement.HEADER else "Authorization"
    taken = {name.lower(): name for name in (*request.headers, request.idempotency_header) if name}
    if credential.placement and own.lower() in taken:
        return {"headers": f"the credential sets {taken[own.lower()]}; leave it out"}
    return {}


def forget_token_of(credential: OpenCredential) -> bool:
    """Drop the kept token of a service account; False: there was none."""
    return forget_token(credential, scope=_scopes_of(credential))


async def shown_of(request: HttpRequest, credential: OpenCredential | None) -> OriginSecret:
    """
    Return the header or the query parameter by which the call shows its credential.

    Raises:
        ProviderError: The credential is not for that host, or its secret does not fit its placement. Nothing was sent.
    """
    if credential is None:
        if request.credential:
            raise ProviderError(None, "The credential is missing.", code="credential_missing", outcome="refused")
        return OriginSecret()
    if faults := credential_faults(request, credential):
        raise _refused(credential, "; ".join(faults.values()), code="credential_not_allowed")
    placement, name = credential.placement, credential.placement_name
    if fault := why_not_shown(placement, name, credential.secret, credential.hosts)[1]:
        raise _refused(credential, fault, code="credential_unusable")
    if is_service_account(credential.secret):
        secret = await access_token(credential, scope=_scopes_of(credential))
    else:
        secret = secret_of(placement, credential.secret)
    texts = [secret, quote(secret, safe=""), quote(secret)]
    if placement == Placement.QUERY:
        return OriginSecret(query=(name, secret), texts=tuple(texts))
    if placement == Placement.HEADER:
        return OriginSecret({name: secret}, texts=tuple(texts))
    if placement == Placement.BASIC:
        encoded = base64.b64encode(secret.encode()).decode()
        password = secret.partition(":")[2]
        texts += [encoded, password, quote(password, safe="")]
        return OriginSecret({"Authorization": f"Basic {encoded}"}, texts=tuple(texts))
    return OriginSecret({"Authorization": f"Bearer {secret}"}, texts=tuple(texts))


def _scopes_of(credential: OpenCredential) -> str:
    return " ".join(credential.oauth_scopes.split()) or GOOGLE_SCOPE


def _refused(credential: OpenCredential, why: str, *, code: str) -> ProviderError:
    return ProviderError(None, f"Credential {credential.name!r}: {why}", code=code, outcome="refused")
