"""
Adds passkeys (WebAuthn), checks them as second factor, and removes them. The library is python-fido2.

A challenge is kept in the session. Any answer uses it up, and a passkey can answer it only once.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from queueops.access.models import Passkey
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError

from . import second_factor

NAME = "QueueOps"
MAX_PASSKEYS = 10  # of one person
ADDING, SHOWING = "passkey_being_added", "passkey_asked_for"  # keys in the session
# The library raises these for data that is not a passkey's answer.
BROKEN = (ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError, NotImplementedError)


class WrongPasskey(QueueOpsError):
    """This passkey is not taken: it is not one of yours here, or it answered another question. Try again."""

    code = "wrong_passkey"
    status = 422


class TooManyPasskeys(QueueOpsError):
    """You have as many passkeys as one person may have. Remove one first."""

    code = "too_many_passkeys"
    status = 409


class PasskeyExists(QueueOpsError):
    """This passkey is one of yours already."""

    code = "passkey_exists"
    status = 409


def begin_adding(request: HttpRequest, user: User, name: str) -> None:
    """
    Keep a challenge for a new passkey in the session.

    Raises:
        TooManyPasskeys
    """
    if Passkey.objects.filter(user=user).count() >= MAX_PASSKEYS:
        raise TooManyPasskeys
    options, state = _server(request).register_begin(
        PublicKeyCredentialUserEntity(
            id=str(user.pk).encode(), name=user.get_username(), display_name=user.get_full_name() or user.get_username()
        ),
        credentials=_credentials(user),
        resident_key_requirement=ResidentKeyRequirement.DISCOURAGED,  # passkeys asked for by id take no device storage
        user_verification=UserVerificationRequirement.PREFERRED,
    )
    request.session[ADDING] = {"state": state, "name": name, "options": json.dumps(dict(options.public_key))}


def being_added(request: HttpRequest) -> dict[str, Any] | None:
    """Return the name of the passkey that is being added, and the question for the browser."""
    found: dict[str, Any] | None = request.session.get(ADDING)
    return found


def give_up(request: HttpRequest) -> None:
    """Forget the passkey that is being added."""
    request.session.pop(ADDING, None)


@transaction.atomic
def add(request: HttpRequest, user: User, answer: Any, *, actor: str) -> Passkey:
    """
    Store the passkey that the browser has made for the challenge.

    Raises:
        WrongPasskey, TooManyPasskeys, PasskeyExists
    """
    begun = request.session.pop(ADDING, None)
    if begun is None:
        raise WrongPasskey
    try:
        made = _server(request).register_complete(begun["state"], answer)
    except BROKEN as error:
        raise WrongPasskey from error
    second_factor.lock(user)
    if Passkey.objects.filter(user=user).count() >= MAX_PASSKEYS:
        raise TooManyPasskeys
    try:
        with transaction.atomic():
            passkey = Passkey.objects.create(
                user=user, name=begun["name"], credential=bytes(made.credential_data or b""), sign_count=made.counter
            )
    except IntegrityError:
        raise PasskeyExists from None
    trail.record(actor=actor, action="add_passkey", target=_target(user), after={"name": passkey.name})
    return passkey


def ask_for(request: HttpRequest, user: User) -> str:
    """
    Keep a challenge for somebody's passkeys in the session. Return the question for the browser; empty: the person has
    no passkeys.
    """
    credentials = _credentials(user)
    if not credentials:
        return ""
    options, request.session[SHOWING] = _server(request).authenticate_begin(
        credentials, user_verification=UserVerificationRequirement.PREFERRED
    )
    return json.dumps(dict(options.public_key))


def show(request: HttpRequest, user: User, answer: Any) -> Passkey | None:
    """
    Return the passkey that answered the challenge; None: the answer is wrong, or was used before.

    The update is conditional: only one of two requests with the same answer is let in, and a copied passkey with an
    older sign count is refused.
    """
    state = request.session.pop(SHOWING, None)
    if state is None:
        return None
    try:
        known = _server(request).authenticate_complete(state, _credentials(user), answer)
        count = AuthenticationResponse.from_dict(answer).response.authenticator_data.counter
    except BROKEN:
        return None
    challenge = hashlib.sha256(state["challenge"].encode()).hexdigest()
    row = Passkey.objects.filter(user=user, credential=bytes(known)).exclude(challenge=challenge)
    moved_on = Q(sign_count__lt=count) if count else Q(sign_count=0)
    if not row.filter(moved_on).update(sign_count=count, challenge=challenge, used_at=Now()):
        return None
    return Passkey.objects.get(credential=bytes(known))


@transaction.atomic
def remove(user: User, passkey_id: int, *, actor: str) -> str:
    """
    Remove a passkey, and return its name; empty: there was none.

    Raises:
        SecondFactorRequired: It is the last second factor, and one is required.
    """
    second_factor.lock(user)
    passkey = Passkey.objects.filter(user=user, pk=passkey_id).first()
    if passkey is None:
        return ""
    fresh = User.objects.select_related("authenticator").get(pk=user.pk)
    if second_factor.is_required_of(user) and len(second_factor.factors_of(fresh)) == 1:
        raise second_factor.SecondFactorRequired
    passkey.delete()
    trail.record(actor=actor, action="remove_passkey", target=_target(user), before={"name": passkey.name})
    return passkey.name


def _server(request: HttpRequest) -> Fido2Server:
    """
    Return the server for the requested host. A passkey answers that host alone, and answers of other origins are
    refused.
    """
    own = f"{request.scheme}://{request.get_host()}"
    host = request.get_host().rpartition(":")[0] or request.get_host()
    return Fido2Server(PublicKeyCredentialRpEntity(id=host, name=NAME), verify_origin=lambda origin: origin == own)


def _credentials(user: User) -> list[AttestedCredentialData]:
    return [AttestedCredentialData(bytes(one.credential)) for one in Passkey.objects.filter(user=user)]


def _target(user: User) -> str:
    return f"user {user.pk}"
