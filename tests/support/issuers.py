"""Issuers of tokens: their keys, a server that publishes them, and the rows that trust them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from queueops.tenancy.callers.tokens import SECRET_ENTRY
from queueops.tenancy.models import Issuer
from queueops.tenancy.secrets.credentials import seal
from tests.factories import make_project

ISSUER = "https://auth.example.org"
AUDIENCE = "authenticated"
USER = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")
OTHER_USER = UUID("1b671a64-40d5-491e-99b0-da01ff1f3341")
SECRET = "the-secret-that-both-sides-know-0123456789"


def claims_of(subject: Any = USER, **claims: Any) -> dict[str, Any]:
    """What a token of that user says for the next hour; a claim of None is left out."""
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": str(subject), "exp": int(time.time()) + 3600, **claims}
    return {name: value for name, value in given.items() if value is not None}


def shared_token(subject: Any = USER, *, secret: str = SECRET, **claims: Any) -> str:
    """Signed with a secret that both sides know."""
    return jwt.encode(claims_of(subject, **claims), secret, algorithm="HS256")


@dataclass(frozen=True)
class Signer:
    """A private key of an issuer; `algorithm` is RS256 or ES256."""

    kid: str | None = "first"
    algorithm: str = "ES256"

    @cached_property
    def key(self) -> Any:
        if self.algorithm == "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return ec.generate_private_key(ec.SECP256R1())

    @property
    def jwk(self) -> dict[str, Any]:
        """As it is published."""
        kind: Any = RSAAlgorithm if self.algorithm == "RS256" else ECAlgorithm
        named = {} if self.kid is None else {"kid": self.kid}
        return {**kind.to_jwk(self.key.public_key(), as_dict=True), "use": "sig", "alg": self.algorithm, **named}

    def token(self, subject: Any = USER, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        named = {"kid": self.kid} if self.kid else {}
        return jwt.encode(
            claims_of(subject, **claims), self.key, algorithm=self.algorithm, headers={**named, **(headers or {})}
        )


@dataclass
class KeyServer:
    """Publishes keys at `url`; `body` instead of them, `status` and `gate` make it answer badly or late."""

    keys: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    body: bytes | None = None
    location: str = ""
    fetches: int = 0
    url: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def answer(self) -> bytes:
        self.fetches += 1
        self.asked.set()
        self.gate.wait(20)
        return self.body if self.body is not None else json.dumps({"keys": self.keys}).encode()


@contextmanager
def publishing(*signers: Signer) -> Iterator[KeyServer]:
    """Publish the signers' keys on loopback."""
    server = KeyServer([signer.jwk for signer in signers])
    server.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = server.answer()
            self.send_response(server.status)
            if server.location:
                self.send_header("Location", server.location)
            self.send_header("Content-Length", str(len(body)))
            with suppress(OSError):  # who asked had enough
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_port}/jwks.json"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        http.shutdown()
        http.server_close()


def make_issuer(*, project: str = "acme", jwks_url: str = "", **fields: Any) -> Issuer:
    """One that publishes its keys at that address, or else has the SECRET in common with us."""
    sealed = None if jwks_url else seal({SECRET_ENTRY: fields.pop("secret", SECRET)})
    given: dict[str, Any] = {
        "name": "app",
        "issuer": ISSUER,
        "audiences": [AUDIENCE],
        "leeway_seconds": 0,
        "scopes": ["read", "submit", "usage"],
        **fields,
    }
    return Issuer.objects.create(project=make_project(project), jwks_url=jwks_url, secret=sealed, **given)
