"""The interface that the server needs of every provider."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from sandbox.envelopes import ApiError
from sandbox.gate import Fate
from sandbox.knobs.settings import Knobs
from sandbox.quotas.book import QuotaCost

_IDENTITY = re.compile(r"project:([^/]+)(?:/user:(.+))?")


@dataclass(frozen=True, slots=True)
class CallIdentity:
    project: str
    user: str


@dataclass(frozen=True, slots=True)
class CallTokens:
    """Tokens that a call is billed for. `cached` and `cache_written` are parts of `prompt`."""

    prompt: int
    output: int
    cached: int = 0
    cache_written: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A call as the provider sees it before any work; `row` is compared with the patterns of `row_errors`."""

    is_write: bool
    row: str | None = None
    caller: CallIdentity | None = None
    quota_kind: str | None = None
    model: str | None = None
    cost_tokens: int = 0
    tokens: CallTokens | None = None
    charges: Sequence[QuotaCost] = ()
    rejected_calls_count: bool = False


class Provider(Protocol):
    name: str

    def add_routes(self, app: web.Application) -> None: ...

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        """
        Read the caller and the cost of a call.

        Raises:
            ApiError: The caller is unknown; no quota is charged.
        """

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        """Return the refusal of a call that the gate gave `fate.status`."""

    def error(self, status: int, message: str) -> ApiError:
        """Return any other refusal in this provider's shape."""

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        """Add headers to an answer that is not yet on its way."""


def bearer_token(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def key_of(request: web.Request) -> str | None:
    """Return the key of a call, in whichever header or parameter its provider expects it."""
    headers = request.headers
    return (
        headers.get("x-goog-api-key") or headers.get("x-api-key") or request.query.get("key") or bearer_token(request)
    )


def caller_of(token: str) -> CallIdentity:
    """Read `project:<p>/user:<u>`; any other token is a user of the project `default`, named by its hash."""
    match = _IDENTITY.fullmatch(token)
    if match:
        return CallIdentity(match[1], match[2] or "default")
    return CallIdentity("default", hashlib.sha256(token.encode()).hexdigest()[:12])
