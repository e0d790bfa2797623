"""
Asks the provider of single sign-on for staff (OpenID Connect), and checks which of its answers are genuine.

Authlib carries out the code flow with state, nonce and PKCE, and checks the ID token.
"""

from __future__ import annotations

from typing import Any

from authlib.integrations.django_client import DjangoIntegration, DjangoOAuth2App, OAuthError
from cachetools import TTLCache, cached
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError
from requests import RequestException

from queueops.core.errors import QueueOpsError
from queueops.tenancy.callers.issuer_keys import give_connection_back

from .provider_calls import GuardedSession

DISCOVERY = "/.well-known/openid-configuration"
LEEWAY_SECONDS = 60  # allowed difference between the provider's clock and ours
KNOWN_SECONDS = 600  # how long the discovery document and keys are kept; an unknown key is fetched at once
# A provider may publish `none` or HS256, too. Neither is accepted: `none` proves nothing, and HS256 would take public
# keys for secrets.
ALGORITHMS = ("RS256", "ES256", "PS256", "RS384", "RS512", "ES384", "ES512", "PS384", "PS512", "EdDSA")
NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# The library raises these for answers of a provider that it cannot read.
NONSENSE = (ValueError, KeyError, TypeError, AttributeError, RuntimeError)
FAULTS = {
    "iss": "It is another issuer's.",
    "aud": "It is meant for another application.",
    "azp": "It was given to another application.",
    "nonce": "It answers another sign-in.",
}


class _Provider(DjangoOAuth2App):
    client_cls = GuardedSession


class ProviderUnreachable(QueueOpsError):
    """The provider does not answer as it should. Try again later; superusers can sign in with their password."""

    code = "provider_unreachable"
    status = 502


class ProviderRefused(QueueOpsError):
    """The provider did not sign you in."""

    code = "provider_refused"
    status = 403
    detail_fields = ("error",)


class SignInStale(QueueOpsError):
    """This sign-in is over: it was used already, took too long, or was begun in another browser. Begin again."""

    code = "sign_in_stale"
    status = 400


class BadIdToken(QueueOpsError):
    """The provider's answer about you cannot be believed. Tell your administrator."""

    code = "bad_id_token"
    status = 403
    detail_fields = ("reason",)


def sign_in_address(request: HttpRequest, callback: str) -> HttpResponse:
    """
    Send somebody to the provider.

    Raises:
        ProviderUnreachable
    """
    give_connection_back()
    discovered()
    answer: HttpResponse = _client().authorize_redirect(request, callback)
    return answer


def claims_of(request: HttpRequest) -> dict[str, Any]:
    """
    Return the provider's claims about the person who comes back from there. The sign-in's state can be used only once:
    an answer that is refused uses it up, too.

    Raises:
        ProviderUnreachable, ProviderRefused, SignInStale, BadIdToken
    """
    give_connection_back()
    discovered()
    client, config = _client(), settings.QUEUEOPS
    wanted = {
        "iss": {"essential": True, "values": [config.oidc_issuer]},
        "aud": {"essential": True, "values": list(config.oidc_audiences or (config.oidc_client_id,))},
    }
    state = request.GET.get("state", "")
    if client.framework.get_state_data(request.session, state) is None:
        raise SignInStale  # before anything of the address is shown: anybody may have written that address
    try:
        token = client.authorize_access_token(request, claims_options=wanted, leeway=LEEWAY_SECONDS)
        if not token.get("userinfo"):
            raise BadIdToken("The provider sent no ID token.", reason="missing")
        return _completed(client, token)
    except OAuthError as error:
        client.framework.clear_state_data(request.session, state)
        raise ProviderRefused(_said(error), error=str(error.error)) from error
    except JoseError as error:
        raise _disbelieved(error) from error
    except RequestException as error:
        raise ProviderUnreachable from error
    except NONSENSE as error:
        raise BadIdToken("The provider's answer cannot be read.", reason="malformed") from error


def discovered() -> dict[str, Any]:
    """
    Return the provider's discovery document.

    Raises:
        ProviderUnreachable
    """
    config = settings.QUEUEOPS
    try:
        document: dict[str, Any] = _client().load_server_metadata()
    except (RequestException, *NONSENSE) as error:
        raise ProviderUnreachable from error
    if document.get("issuer") != config.oidc_issuer or any(not document.get(name) for name in NEEDED):
        _client.cache_clear()
        raise ProviderUnreachable("The provider's discovery document is not that of the issuer in the settings.")
    published = document.get("id_token_signing_alg_values_supported") or ["RS256"]
    document["id_token_signing_alg_values_supported"] = [one for one in ALGORITHMS if one in published]
    return document


def at(claims: Any, path: str) -> Any:
    """Return a claim by its name, or by a path with dots into nested objects; None: there is no such claim."""
    if isinstance(claims, dict) and path in claims:  # names with dots in them exist: https://example.org/groups
        return claims[path]
    name, _, rest = path.partition(".")
    return at(claims.get(name), rest) if rest and isinstance(claims, dict) else None


def _completed(client: Any, token: dict[str, Any]) -> dict[str, Any]:
    """Add the claims of the provider's userinfo address, if the groups are not in the token."""
    claims = dict(token["userinfo"])
    if at(claims, settings.QUEUEOPS.oidc_group_claim) is not None or "userinfo_endpoint" not in client.server_metadata:
        return claims
    told = client.userinfo(token=token)
    if told.get("sub") != claims["sub"]:
        raise BadIdToken("The provider speaks of somebody else.", reason="sub")
    return {**told, **claims}


def _disbelieved(error: JoseError) -> BadIdToken:
    if isinstance(error, ExpiredTokenError):
        return BadIdToken("What the provider sent has expired. Begin again.", reason="expired")
    if isinstance(error, BadSignatureError):
        return BadIdToken("The signature of what the provider sent does not fit.", reason="signature")
    claim = str(getattr(error, "claim", "")) if isinstance(error, ClaimError) else ""
    return BadIdToken(
        f"The provider's ID token is not taken. {FAULTS.get(claim, '')}".strip(), reason=claim or error.error
    )


def _said(error: OAuthError) -> str:
    said = "".join(letter for letter in str(error.description or error.error) if letter.isprintable())
    return f"The provider did not sign you in. It says: {said[:200]}"


@cached(TTLCache(maxsize=1, ttl=KNOWN_SECONDS), key=lambda: settings.QUEUEOPS)
def _client() -> Any:
    config = settings.QUEUEOPS
    return _Provider(
        DjangoIntegration("provider"),
        client_id=config.oidc_client_id,
        client_secret=config.oidc_client_secret or None,
        server_metadata_url=config.oidc_issuer.rstrip("/") + DISCOVERY,
        client_kwargs={
            "scope": " ".join(config.oidc_scopes),
            "code_challenge_method": "S256",
        },
    )
