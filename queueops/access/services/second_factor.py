"""Second factors: set up, shown when signing in, removed. The audit trail records changes."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from queueops.access.models import Authenticator, Passkey, RecoveryCode
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.tenancy.models import digest_of
from queueops.tenancy.secrets import credentials

ISSUER = "QueueOps"
TOTP_SECRET_BYTES = 20  # RFC 4226, 4: 160 bits
STEP_SECONDS = 30
DIGITS = 6
LENIENT_STEPS = 1  # a phone's clock may be wrong by half a minute; RFC 6238, 5.2 recommends one step
RECOVERY_CODES = 10
RECOVERY_BYTES = 10  # 80 random bits: a slow hash would add no protection


class WrongCode(QueueOpsError):
    """The code is wrong, or was used before."""

    code = "wrong_code"
    status = 422


class AlreadySetUp(QueueOpsError):
    """There is a second factor already."""

    code = "second_factor_exists"
    status = 409


class SecondFactorRequired(QueueOpsError):
    """This installation requires a second factor of everybody who is staff."""

    code = "second_factor_required"
    status = 403


class SecondFactorUnreadable(QueueOpsError):
    """No key in QUEUEOPS_CREDENTIAL_KEYS opens the second factor. Use a recovery code, or have it reset."""

    code = "second_factor_unreadable"
    status = 500


@dataclass(frozen=True, slots=True)
class Shown:
    """
    The second factor that somebody showed.

    Attributes:
        recovery_codes_left: How many recovery codes are unused; None: the code was one of the app.
    """

    authenticator: Authenticator
    recovery_codes_left: int | None = None


def authenticator_of(user: Any) -> Authenticator | None:
    return getattr(user, "authenticator", None)


def factors_of(user: Any) -> list[int | str]:
    """Return an identifier for each of somebody's second factors. A session stores the identifier of the one shown."""
    if not getattr(user, "pk", None):
        return []
    authenticator, keys = authenticator_of(user), getattr(user, "passkey_ids", None)
    if keys is None:
        keys = user.passkeys.values_list("pk", flat=True)
    return [*([authenticator.pk] if authenticator else []), *(factor_of_passkey(key) for key in keys)]


def factor_of_passkey(passkey_id: int) -> str:
    return f"passkey:{passkey_id}"


def is_required_of(user: Any) -> bool:
    return bool(user.is_staff and settings.QUEUEOPS.second_factor == "required")


def new_secret() -> bytes:
    return secrets.token_bytes(TOTP_SECRET_BYTES)


def seal(secret: bytes) -> bytes:
    """
    Raises:
        CredentialKeysMissing: Production has no QUEUEOPS_CREDENTIAL_KEYS.
    """
    return credentials.seal({"totp": typed(secret)})


def unseal(token: bytes) -> bytes:
    """
    Raises:
        CredentialKeysMissing, SecondFactorUnreadable
    """
    try:
        return base64.b32decode(credentials.unseal(token)["totp"])
    except InvalidToken:
        raise SecondFactorUnreadable from None


def typed(secret: bytes) -> str:
    """Return the secret in the form that people type into an app if they cannot scan the picture."""
    return base64.b32encode(secret).decode()


def address_of(secret: bytes, user: User) -> str:
    """Return the otpauth:// address that the picture (QR code) holds."""
    return _totp(secret).get_provisioning_uri(user.get_username(), ISSUER)


def code_at(secret: bytes, step: int) -> str:
    return _totp(secret).generate(step * STEP_SECONDS).decode()


def current_step() -> int:
    return int(time.time()) // STEP_SECONDS


@transaction.atomic
def set_up(user: User, secret: bytes, code: str, *, actor: str) -> tuple[Authenticator, list[str]]:
    """
    Store a new second factor, if `code` is right for its secret.

    Returns:
        The second factor, and its recovery codes, which cannot be seen again.

    Raises:
        WrongCode, AlreadySetUp, CredentialKeysMissing
    """
    step = _step_of(secret, code)
    if step is None:
        raise WrongCode
    lock(user)  # otherwise two set-ups at once would not see each other
    if Authenticator.objects.filter(user=user).exists():
        raise AlreadySetUp
    authenticator = Authenticator.objects.create(user=user, secret=seal(secret), last_step=step)
    trail.record(actor=actor, action="set_up_second_factor", target=_target(user.pk))
    return authenticator, _issue_codes(authenticator)


def show(authenticator: Authenticator, code: str) -> Shown | None:
    """
    Use a code of the app, or a recovery code; None: it is wrong or was used before.

    Each update requires that the code is still unused: only one of two requests with the same code is let in.

    Raises:
        CredentialKeysMissing, SecondFactorUnreadable
    """
    given = "".join(code.split()).replace("-", "").upper()
    if given.isdecimal() and len(given) == DIGITS:
        step = _step_of(unseal(bytes(authenticator.secret)), given)
        fresh = Authenticator.objects.filter(pk=authenticator.pk, last_step__lt=step) if step is not None else None
        return Shown(authenticator) if fresh is not None and fresh.update(last_step=step) else None
    unused = RecoveryCode.objects.filter(authenticator=authenticator, used_at=None)
    if not unused.filter(digest=digest_of(given)).update(used_at=Now()):
        return None
    return Shown(authenticator, recovery_codes_left=unused.count())


@transaction.atomic
def renew_recovery_codes(authenticator: Authenticator, *, actor: str) -> list[str]:
    """Replace all recovery codes, used or not, and return the new ones, which cannot be seen again."""
    trail.record(actor=actor, action="renew_recovery_codes", target=_target(authenticator.user_id))
    return _issue_codes(authenticator)


@transaction.atomic
def turn_off(user: User, *, actor: str) -> None:
    """
    Remove the app as second factor, and the recovery codes with it; passkeys stay.

    Raises:
        SecondFactorRequired
    """
    lock(user)
    if is_required_of(user) and not Passkey.objects.filter(user=user).exists():
        raise SecondFactorRequired
    if Authenticator.objects.filter(user=user).delete()[0]:
        trail.record(actor=actor, action="reset_second_factor", target=_target(user.pk))


def lock(user: User) -> None:
    """Lock the person's row: until the transaction ends, nobody else adds or removes their second factors."""
    User.objects.select_for_update().get(pk=user.pk)


@transaction.atomic
def take_away(user_ids: Sequence[int], *, actor: str, reason: str = "") -> int:
    """Remove all second factors of these people. Return how many of the people had a second factor."""
    people = User.objects.select_for_update().filter(pk__in=user_ids).order_by("pk")
    owners = [user.pk for user in people if factors_of(user)]
    Authenticator.objects.filter(user_id__in=owners).delete()
    Passkey.objects.filter(user_id__in=owners).delete()
    for owner in owners:
        trail.record(actor=actor, action="reset_second_factor", target=_target(owner), reason=reason)
    return len(owners)


def _totp(secret: bytes) -> TOTP:
    return TOTP(secret, DIGITS, SHA1(), STEP_SECONDS)  # noqa: S303 - what authenticator apps compute


def _step_of(secret: bytes, code: str) -> int | None:
    """Return the newest time step with this code; None: the code is wrong."""
    given, now = "".join(code.split()), current_step()
    for step in range(now + LENIENT_STEPS, now - LENIENT_STEPS - 1, -1):
        if secrets.compare_digest(code_at(secret, step).encode(), given.encode()):
            return step
    return None


def _issue_codes(authenticator: Authenticator) -> list[str]:
    plain = [base64.b32encode(secrets.token_bytes(RECOVERY_BYTES)).decode() for _ in range(RECOVERY_CODES)]
    authenticator.recovery_codes.all().delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(authenticator=authenticator, digest=digest_of(code)) for code in plain
    )
    return ["-".join(code[start : start + 4] for start in range(0, len(code), 4)) for code in plain]


def _target(user_id: int) -> str:
    return f"user {user_id}"
