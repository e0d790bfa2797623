"""Which tokens count, whom they stand for, and what is said about the others."""

from __future__ import annotations

import base64
import json
import time
import warnings
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from queueops.tenancy.callers.issuer_keys import IssuerKeysUnavailable
from queueops.tenancy.callers.tokens import MAX_TOKEN_CHARACTERS, ExpiredToken, InvalidToken, verify_token
from queueops.tenancy.models import Issuer
from tests.support.issuers import ISSUER, SECRET, USER, Signer, claims_of, make_issuer, publishing, shared_token

pytestmark = pytest.mark.django_db

RSA, EC = Signer("rsa", "RS256"), Signer("ec", "ES256")


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def with_header(token: str, **header: Any) -> str:
    """The same signature under another header."""
    _, claims, signature = token.split(".")
    return f"{part({**jwt.get_unverified_header(token), **header})}.{claims}.{signature}"


def with_claims(token: str, **claims: Any) -> str:
    header, _, signature = token.split(".")
    return f"{header}.{part(claims_of(**claims))}.{signature}"


def signed_anyhow(claims: dict[str, Any], key: Any, algorithm: str, **header: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short keys
        return jwt.encode(claims, key, algorithm=algorithm, headers=header)


def by_hand(header: dict[str, Any], claims: Any, secret: str = SECRET) -> str:
    """As no library would write it, with a genuine signature (HS256)."""
    signed = f"{part(header)}.{claims if isinstance(claims, str) else part(claims)}"
    signature = jwt.get_algorithm_by_name("HS256").sign(signed.encode(), secret.encode())
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.fixture
def shared(db: None) -> Issuer:
    return make_issuer()


@pytest.fixture
def published(db: None) -> Any:
    with publishing(RSA, EC) as server:
        make_issuer(jwks_url=server.url)
        yield server


def refusal(token: str) -> str:
    with pytest.raises((InvalidToken, ExpiredToken)) as refused:
        verify_token(token)
    return str(refused.value.details.get("reason", "expired"))


def test_a_token_signed_with_the_shared_secret_stands_for_its_user(shared):
    verified = verify_token(shared_token())
    assert (verified.user_id, verified.issuer.project_id, verified.subject) == (USER, "acme", str(USER))


def test_a_token_signed_with_a_published_key_stands_for_its_user(published):
    assert [verify_token(signer.token()).user_id for signer in (RSA, EC)] == [USER, USER]


NOT_ENOUGH: list[tuple[dict[str, Any], str]] = [
    ({"exp": None}, "missing_claim"),
    ({"exp": 1}, "expired"),
    ({"exp": "soon"}, "malformed"),
    ({"exp": 1e999}, "malformed"),
    ({"exp": 10**400}, "malformed"),
    ({"aud": None}, "missing_claim"),
    ({"aud": "somebody else"}, "wrong_audience"),
    ({"aud": ["anon", "service_role"]}, "wrong_audience"),
    ({"aud": []}, "missing_claim"),
    ({"aud": {"authenticated": True}}, "wrong_audience"),
    ({"sub": None}, "missing_claim"),
    ({"sub": ""}, "bad_subject"),
    ({"sub": 7}, "bad_subject"),
    ({"sub": ["a"]}, "bad_subject"),
    ({"sub": "x" * 256}, "bad_subject"),
    ({"sub": "a\0b"}, "bad_subject"),
    ({"sub": "\ud800"}, "bad_subject"),
    ({"nbf": 4_000_000_000}, "not_yet_valid"),
    ({"iat": 4_000_000_000}, "not_yet_valid"),
    ({"nbf": "now"}, "malformed"),
    ({"iss": None}, "unknown_issuer"),
    ({"iss": f"{ISSUER}/"}, "unknown_issuer"),
    ({"iss": ISSUER.upper()}, "unknown_issuer"),
    ({"iss": f"{ISSUER}\0"}, "unknown_issuer"),
    ({"iss": "\ud800"}, "unknown_issuer"),
    ({"iss": "x" * 5000}, "unknown_issuer"),
    ({"iss": [ISSUER]}, "unknown_issuer"),
    ({"iss": {"a": 1}}, "unknown_issuer"),
]


def test_a_genuine_signature_alone_is_not_enough(shared):
    wrong = {}
    for claims, reason in NOT_ENOUGH:
        given = {name: value for name, value in {**claims_of(), **claims}.items() if value is not None}
        told = refusal(by_hand({"alg": "HS256", "typ": "JWT"}, given))
        if told != reason:
            wrong[str(claims)[:60]] = told
    assert wrong == {}


def public_pem(signer: Signer) -> bytes:
    return bytes(signer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


STRANGER = Signer("rsa", "RS256")
FORGERIES: dict[str, tuple[Any, str]] = {
    "no signature": (lambda: jwt.encode(claims_of(), "", algorithm="none", headers={"kid": "rsa"}), "wrong_algorithm"),
    "None in another spelling": (lambda: with_header(RSA.token(), alg="nOnE"), "wrong_algorithm"),
    "signature cut off": (lambda: RSA.token().rpartition(".")[0] + ".", "bad_signature"),
    "another's key under the same name": (STRANGER.token, "bad_signature"),
    "claims changed": (lambda: with_claims(RSA.token(), subject="admin"), "bad_signature"),
    "public key as HMAC secret": (
        lambda: by_hand({"alg": "HS256", "kid": "rsa"}, claims_of(), public_pem(RSA).decode()),
        "wrong_algorithm",
    ),
    "public key of the EC kind as HMAC secret": (
        lambda: by_hand({"alg": "HS256", "kid": "ec"}, claims_of(), public_pem(EC).decode()),
        "wrong_algorithm",
    ),
    "RS256 under the name of an EC key": (lambda: RSA.token(headers={"kid": "ec"}), "wrong_algorithm"),
    "a longer digest": (
        lambda: jwt.encode(claims_of(), RSA.key, algorithm="RS512", headers={"kid": "rsa"}),
        "wrong_algorithm",
    ),
    "PSS": (lambda: jwt.encode(claims_of(), RSA.key, algorithm="PS256", headers={"kid": "rsa"}), "wrong_algorithm"),
    "no key named": (lambda: jwt.encode(claims_of(), RSA.key, algorithm="RS256"), "unknown_key"),
    "a path as the key's name": (lambda: RSA.token(headers={"kid": "../../../dev/null"}), "unknown_key"),
    "SQL as the key's name": (lambda: RSA.token(headers={"kid": "x' UNION SELECT 'a"}), "unknown_key"),
    "NUL in the key's name": (lambda: RSA.token(headers={"kid": "rsa\0"}), "unknown_key"),
    "a list as the key's name": (lambda: with_header(RSA.token(), kid=["rsa"]), "malformed"),
    "its own key in the header": (
        lambda: STRANGER.token(headers={"jwk": STRANGER.jwk, "kid": "rsa"}),
        "bad_signature",
    ),
    "an extension that must be understood": (lambda: RSA.token(headers={"crit": ["x"], "x": 1}), "malformed"),
}


def test_a_forgery_is_refused(published):
    assert {name: refusal(make()) for name, (make, _) in FORGERIES.items()} == {
        name: reason for name, (_, reason) in FORGERIES.items()
    }


def test_the_header_sends_nobody_to_another_key_server(published):
    with publishing(STRANGER) as trap:
        for header in ("jku", "x5u"):
            assert refusal(STRANGER.token(headers={header: trap.url, "kid": "rsa"})) == "bad_signature"
            assert refusal(STRANGER.token(headers={header: trap.url, "kid": "new"})) == "unknown_key"
        assert trap.fetches == 0


def test_a_shared_secret_takes_no_other_algorithm(shared):
    for algorithm in ("HS384", "HS512"):
        assert refusal(signed_anyhow(claims_of(), SECRET, algorithm)) == "wrong_algorithm"
    assert refusal(RSA.token()) == "wrong_algorithm"
    assert refusal(shared_token(secret="another-secret-of-the-same-length-0123456")) == "bad_signature"


NO_TOKENS = [
    "",
    ".",
    "..",
    "a.b",
    "a.b.c",
    "a.b.c.d.e",
    "ä.ö.ü",
    "\ud800.b.c",
    f"{part({'alg': 'HS256'})}.{part([1])}.x",
    f"{part('HS256')}.{part({})}.x",
    f"{part({'alg': 'HS256'})}.{base64.urlsafe_b64encode(b'[' * 4000).decode()}.x",
    by_hand({"alg": "HS256"}, base64.urlsafe_b64encode(b"[" * 4000).decode().rstrip("=")),
    by_hand({"alg": "HS256", "b64": False, "crit": ["b64"]}, claims_of()),
    by_hand({"alg": "HS256", "zip": "DEF"}, "eJwDAAAAAAE"),
    by_hand({"alg": ["HS256"]}, claims_of()),
    by_hand({"alg": None}, claims_of()),
    by_hand({}, claims_of()),
]


def test_what_is_no_token_is_called_so(shared):
    told = [(token[:60], refusal(token)) for token in NO_TOKENS]  # some begin alike
    assert [one for one in told if one[1] not in {"malformed", "wrong_algorithm"}] == []


def test_a_token_of_any_length_is_not_even_looked_at(shared):
    assert refusal("x" * (MAX_TOKEN_CHARACTERS + 1)) == "too_long"
    long = shared_token(app_metadata="x" * (MAX_TOKEN_CHARACTERS * 3 // 4 - 400))
    assert 7_000 < len(long) <= MAX_TOKEN_CHARACTERS
    assert verify_token(long).user_id == USER


def test_the_leeway_bears_with_a_clock_that_is_off(shared):
    now = int(time.time())
    late, early = shared_token(exp=now - 20), shared_token(nbf=now + 20, iat=now + 20)
    assert (refusal(late), refusal(early)) == ("expired", "not_yet_valid")
    Issuer.objects.update(leeway_seconds=30)
    assert verify_token(late).expires_at == now - 20 + 30
    assert verify_token(early).user_id == USER


def test_one_of_several_audiences_is_enough(shared):
    Issuer.objects.update(audiences=["web", "mobile"])
    assert verify_token(shared_token(aud="mobile")).user_id == USER
    assert verify_token(shared_token(aud=["other", "web"])).user_id == USER
    assert refusal(shared_token(aud="authenticated")) == "wrong_audience"


def test_the_tokens_of_an_issuer_that_is_turned_off_are_refused_at_once(shared):
    token = shared_token()
    verify_token(token)
    Issuer.objects.update(enabled=False)
    assert refusal(token) == "unknown_issuer"


def test_a_subject_that_is_a_uuid_is_the_user(shared):
    for written in (str(USER), str(USER).upper()):
        assert verify_token(shared_token(written)).user_id == USER


def test_any_other_subject_is_always_the_same_user(shared):
    for subject in ("auth0|5f7c8ec7c33c6c004bbafe82", "7", USER.hex, f"{{{USER}}}", f"urn:uuid:{USER}"):
        expected = uuid5(NAMESPACE_URL, f"{ISSUER} {subject}")
        assert verify_token(shared_token(subject)).user_id == expected == verify_token(shared_token(subject)).user_id
        assert expected != USER


def test_the_mapping_of_subjects_never_changes(shared):
    """Rows of years hold what it gives."""
    assert verify_token(shared_token("auth0|7")).user_id == UUID("23015a33-9264-561d-a5e1-b9cd62f68ca0")


def test_the_same_subject_of_two_issuers_is_two_users(shared):
    make_issuer(project="globex", issuer="https://other.example.org")
    one, other = (verify_token(shared_token("7", iss=iss)) for iss in (ISSUER, "https://other.example.org"))
    assert one.user_id != other.user_id
    assert (one.issuer.project_id, other.issuer.project_id) == ("acme", "globex")


def test_a_secret_that_no_key_opens_is_our_fault_and_not_the_tokens(shared):
    Issuer.objects.update(secret=b"gAAAAA")
    with pytest.raises(IssuerKeysUnavailable):
        verify_token(shared_token())
