"""
Where `http.request` may show a credential, and how: its hosts and its placement. Pure functions.

A host is a name or an address; `*.example.org` stands for every name below example.org, but not for example.org.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Any

from yarl import URL

from queueops.core.outbound.client import RESERVED_HEADERS, checked_headers
from queueops.core.outbound.policy import OutboundRefused, is_local
from queueops.tenancy.models import Placement

GOOGLE = ("*.googleapis.com",)  # the only hosts that take a service account's token
MAX_HOSTS = 50
ANY_BELOW = "*."

_PARAMETER = re.compile(r"[\w.~\[\]-]{1,100}", re.ASCII)
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def read_host(text: str) -> str:
    """
    Return a host in the form that is compared: lower case, no trailing dot, international names in ASCII.

    Raises:
        ValueError: The text is no host: for example a URL, or a host with a port.
    """
    below = ANY_BELOW if text.startswith(ANY_BELOW) else ""
    given = text.removeprefix(below).strip()
    try:
        return str(ip_address(given)) if not below else _name(given, below)
    except ValueError:
        return _name(given, below)


def is_among(host: str, hosts: Collection[str]) -> bool:
    """Whether a host or a pattern is one of `hosts`, or is covered by one of their patterns."""
    return host in hosts or any(host.endswith(one[1:]) for one in hosts if one.startswith(ANY_BELOW))


def why_not_at(url: str, hosts: Collection[str]) -> str:
    """Return why a credential with these hosts may not be sent to a URL; empty: it may."""
    host = (URL(url).raw_host or "").rstrip(".").lower()
    if not is_among(host, hosts):
        told = f"only to {', '.join(hosts)}" if hosts else "to no host: an administrator names its hosts"
        return f"the credential is never sent to {host}; it goes {told}"
    if not url.lower().startswith("https:") and not is_local(host):
        return "the credential is sent over https only"
    return ""


def secret_of(placement: str, secret: Mapping[str, Any]) -> str:
    """
    Return the text to send; for BASIC, `username:password`. Empty: the secret lacks what the placement needs, or
    belongs to a service account.
    """
    if placement == Placement.BASIC:
        user, password = (secret.get(name) for name in ("username", "password"))
        whole = isinstance(user, str) and isinstance(password, str) and ":" not in user and bool(password)
        return f"{user}:{password}" if whole else ""
    found = secret.get("access_token") or secret.get("api_key")
    return found.strip() if isinstance(found, str) else ""


def is_service_account(secret: Mapping[str, Any]) -> bool:
    return "private_key" in secret and not secret.get("access_token")


def why_not_shown(placement: str, name: str, secret: Mapping[str, Any], hosts: Collection[str]) -> tuple[str, str]:
    """Return the wrong field and why a secret cannot be sent this way; empty texts: it can. Quotes no secret."""
    if fault := _why_no_name(placement, name):
        return "placement_name", fault
    if is_service_account(secret):
        if placement != Placement.BEARER:
            return "placement", "A service account's token goes as Authorization: Bearer."
        below = all(is_among(host, GOOGLE) for host in hosts)
        return ("", "") if below else ("hosts", "A Google service account opens names below googleapis.com only.")
    shown, fault = secret_of(placement, secret), ""
    if not shown and placement == Placement.BASIC:
        fault = 'The secret is {"username": "…", "password": "…"}, without a colon in the user\'s name.'
    elif not shown:
        fault = 'The secret needs "api_key" or "access_token".'
    elif not _is_sent("Authorization", shown):
        fault = "The secret has a control character."
    return ("placement", fault) if fault else ("", "")


def _why_no_name(placement: str, name: str) -> str:
    if placement == Placement.QUERY and not _PARAMETER.fullmatch(name):
        return "Give the name of the parameter, such as key."
    if placement == Placement.HEADER and not _is_sent(name, ""):
        return "Give the name of the header, such as X-Api-Key."
    if placement == Placement.HEADER and name.lower() in RESERVED_HEADERS:
        return f"{name} is set by QueueOps."
    return ""


def _is_sent(header: str, value: str) -> bool:
    try:
        checked_headers({header: value})
    except OutboundRefused:
        return False
    return True


def _name(given: str, below: str) -> str:
    try:
        host = (URL(f"https://{given}/").raw_host or "").rstrip(".").lower()
    except ValueError:
        host = ""
    # A port, a user or a path in `given` would otherwise be dropped here without an error.
    if not _NAME.fullmatch(host) or set(given) & set(":/@?#") or (below and "." not in host):
        raise ValueError(f"{below}{given} is no host: write api.example.org, or *.example.org for all names below it.")
    return f"{below}{host}"
