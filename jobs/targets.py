"""
Targets: where a job's call goes, as far as an outage may be told apart by it. Pure.

A target is a base URL with its port, and after a space the credential that gave it: `https://llm.example:443 acme-key`.
Empty: the service has one address for everybody.
"""

from __future__ import annotations

import zlib
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
MOST_CHARACTERS = 400


def target_of(url: str, *, credential: str = "") -> str:
    """
    Return the target of calls to `url`.

    Args:
        credential: Whose address it is; empty: anybody's.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{host}:{parts.port or PORTS.get(parts.scheme, 0)}"
    return (f"{base} {credential}" if credential else base)[:MOST_CHARACTERS]


def path_of(text: str) -> int:
    """Return what stands for a path of a target: never 0, which stands for none; equal ones are equal."""
    return (zlib.crc32(text.encode(errors="replace")) - 2**31) or 1


def address_of(target: str) -> str:
    """The target without its credential."""
    return target.partition(" ")[0]


def tag_of(target: str) -> str:
    """A short name of a target for a lane's; empty for none."""
    return f"{zlib.crc32(target.encode()):08x}" if target else ""


def name_of(service: str, target: str) -> str:
    """A target in words: `google-sheets`, `openai at https://llm.example:443`, `http:api.example`."""
    address = address_of(target)
    host = urlsplit(address).hostname
    if not address or (service == f"http:{host}"[:64] and urlsplit(address).port in PORTS.values()):
        return service
    if service.startswith("http:"):
        return address
    return f"{service} at {address}"
