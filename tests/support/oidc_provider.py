"""
An OpenID Connect provider as a process of its own: discovery, keys, code flow with PKCE, userinfo, sign-out.

`python -m tests.support.oidc_provider PORT`. Whoever comes is signed in at once, as what was last put to `/control`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from urllib.request import Request, urlopen

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

CLIENT_ID, CLIENT_SECRET = "queueops", "secret-of-the-client"


class State:
    """What the provider knows: its keys, codes it gave out, and how it is to behave."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.fault = ""

    def discovery(self) -> dict[str, Any]:
        address = self.issuer
        return {
            "issuer": "https://somebody.else.example" if self.fault == "discovery" else address,
            "authorization_endpoint": f"{address}/authorize",
            "token_endpoint": f"{address}/token",
            "jwks_uri": f"{address}/jwks",
            "userinfo_endpoint": f"{address}/userinfo",
            "end_session_endpoint": f"{address}/end",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
        }

    def keys(self) -> dict[str, Any]:
        jwk = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**jwk, "kid": "one", "use": "sig", "alg": "RS256"}]}

    def id_token(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "ann-at-the-provider",
            "iat": now,
            "exp": now + 300,
            "nonce": asked.get("nonce"),
            **self.claims,
        }
        wrong: dict[str, dict[str, Any]] = {
            "iss": {"iss": "https://somebody.else.example"},
            "aud": {"aud": "another-client"},
            "expired": {"iat": now - 900, "exp": now - 600},
            "nonce": {"nonce": "of-another-sign-in"},
        }
        claims |= wrong.get(self.fault, {})
        if self.fault == "none":
            return jwt.encode(claims, "", algorithm="none")
        if self.fault == "hmac":  # with the public key as its secret
            return self.hmac_token(claims)
        key = self.stranger if self.fault == "signature" else self.key
        return jwt.encode(claims, key, algorithm="RS256", headers={"kid": "other" if self.fault == "kid" else "one"})

    def hmac_token(self, claims: dict[str, Any]) -> str:
        """By hand, for PyJWT makes no such thing."""
        public = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        parts = ({"alg": "HS256", "kid": "one", "typ": "JWT"}, claims)
        signed = ".".join(plain_base64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{plain_base64(hmac.digest(public, signed.encode(), 'sha256'))}"


def plain_base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def challenge_of(verifier: str) -> str:
    return plain_base64(hashlib.sha256(verifier.encode()).digest())


class Handler(BaseHTTPRequestHandler):
    state: State

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = dict(parse_qsl(parts.query))
        if parts.path == "/.well-known/openid-configuration":
            self.answer(200, self.state.discovery())
        elif parts.path == "/jwks":
            self.answer(200, self.state.keys())
        elif parts.path == "/authorize":
            self.authorize(given)
        elif parts.path == "/userinfo":
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            self.answer(200 if token in self.state.tokens else 401, self.state.tokens.get(token, {}))
        else:
            self.answer(200, {"signed_out": given})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/control":
            told = json.loads(body)
            self.state.claims, self.state.userinfo = told.get("claims", {}), told.get("userinfo", {})
            self.state.fault = told.get("fault", "")
            self.answer(200, {})
        else:
            self.token({name: values[0] for name, values in parse_qs(body.decode()).items()})

    def authorize(self, given: dict[str, str]) -> None:
        code = secrets.token_urlsafe(16)
        if given.get("client_id") != CLIENT_ID or given.get("code_challenge_method") != "S256":
            self.answer(400, {"error": "invalid_request"})
            return
        self.state.codes[code] = given
        refused = {"error": "access_denied", "error_description": "Ann clicked Cancel"}
        answer = refused if self.state.fault == "refuse" else {"code": code}
        self.send_response(302)
        self.send_header("Location", f"{given['redirect_uri']}?{urlencode({**answer, 'state': given['state']})}")
        self.end_headers()

    def token(self, given: dict[str, str]) -> None:
        basic = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        asked = self.state.codes.pop(given.get("code", ""), None)
        if basic != f"{CLIENT_ID}:{CLIENT_SECRET}":
            self.answer(401, {"error": "invalid_client"})
        elif (
            asked is None
            or challenge_of(given.get("code_verifier", "")) != asked["code_challenge"]
            or given.get("redirect_uri") != asked["redirect_uri"]
        ):
            self.answer(400, {"error": "invalid_grant"})
        else:
            access = secrets.token_urlsafe(16)
            self.state.tokens[access] = {
                "sub": self.state.claims.get("sub", "ann-at-the-provider"),
                **self.state.userinfo,
            }
            token = {} if self.state.fault == "missing" else {"id_token": self.state.id_token(asked)}
            self.answer(200, {"access_token": access, "token_type": "Bearer", "expires_in": 300, **token})

    def answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        pass


class Provider:
    """The process, as a test speaks to it."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.process = process

    def behave(self, *, fault: str = "", userinfo: dict[str, Any] | None = None, **claims: Any) -> None:
        """Say of whoever comes next what the claims say; a fault makes the answer wrong."""
        body = json.dumps({"claims": claims, "userinfo": userinfo or {}, "fault": fault}).encode()
        urlopen(Request(f"{self.issuer}/control", body), timeout=10).close()  # noqa: S310 - ours, on loopback

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(120)


@contextmanager
def providing() -> Iterator[Provider]:
    """Run one on loopback, at a free port."""
    process = subprocess.Popen([sys.executable, "-m", "tests.support.oidc_provider"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Provider(int(process.stdout.readline()), process)
    finally:
        process.kill()
        process.wait(120)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    Handler.state = State(f"http://127.0.0.1:{server.server_port}")
    print(server.server_port, flush=True)  # noqa: T201 - who started it reads it
    server.serve_forever()
