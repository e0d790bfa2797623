"""A security key in software, for what no real one would do; tests/browser/test_passkeys.py has Chromium's."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import sha256, websafe_encode
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

HERE = "http://testserver"
FLAGS = AuthenticatorData.FLAG


@dataclass
class SoftPasskey:
    """`counts`: whether it tells how often it was used, as some do."""

    origin: str = HERE
    counts: bool = True
    count: int = 0
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    id: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def create(self, options: str) -> str:
        """What `navigator.credentials.create` gives for these options."""
        public = ES256.from_cryptography_key(self.key.public_key())
        credential = AttestedCredentialData.create(Aaguid.NONE, self.id, public)
        data = AuthenticatorData.create(self._host(), FLAGS.UP | FLAGS.AT, self.count, credential)
        made = AttestationObject.create("none", data, {})
        return self._answer(
            {"attestationObject": websafe_encode(made)}, self._client_data("webauthn.create", options), {}
        )

    def get(self, options: str) -> str:
        """What `navigator.credentials.get` gives for these options."""
        self.count += self.counts
        data = AuthenticatorData.create(self._host(), FLAGS.UP, self.count)
        client_data = self._client_data("webauthn.get", options)
        signature = self.key.sign(data + sha256(client_data), ec.ECDSA(SHA256()))
        parts = {"authenticatorData": websafe_encode(data), "signature": websafe_encode(signature)}
        return self._answer(parts, client_data, {})

    def _host(self) -> bytes:
        return sha256(self.origin.partition("//")[2].partition(":")[0].encode())

    def _client_data(self, kind: str, options: str) -> bytes:
        return CollectedClientData.create(kind, json.loads(options)["challenge"], self.origin)

    def _answer(self, parts: dict[str, str], client_data: bytes, extensions: dict[str, Any]) -> str:
        named = {"id": websafe_encode(self.id), "rawId": websafe_encode(self.id), "type": "public-key"}
        response = {"clientDataJSON": websafe_encode(client_data), **parts}
        return json.dumps({**named, "response": response, "clientExtensionResults": extensions})
