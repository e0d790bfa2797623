"""Invitations: an account with a role, and a link by which its owner chooses the password, once."""

from __future__ import annotations

import smtplib
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.core.mail import EmailMessage
from django.db import transaction
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from queueops.access.backend import ONLY
from queueops.audit import trail
from queueops.core.errors import QueueOpsError

LASTS_HOURS = settings.PASSWORD_RESET_TIMEOUT // 3600


class InvitationTokens(PasswordResetTokenGenerator):
    """Tokens that hold the account's state: setting a password, or another invitation, makes earlier tokens invalid."""

    key_salt = "queueops.access.invitation"


tokens = InvitationTokens()


class AccountExists(QueueOpsError):
    """There is an account already."""

    code = "account_exists"
    status = 409


class RoleNotYours(QueueOpsError):
    """You may give only roles all of whose permissions are yours."""

    code = "role_not_yours"
    status = 403


class NothingToInvite(QueueOpsError):
    """This account has a password, comes by the provider, or is deactivated: there is nothing to invite it to."""

    code = "nothing_to_invite"
    status = 409


class InvitedByProvider(QueueOpsError):
    """People sign in by your provider here. Put them into one of its groups that QUEUEOPS_OIDC_ROLES names."""

    code = "invited_by_provider"
    status = 409


@dataclass(frozen=True, slots=True)
class Invited:
    """An invited account and its link. `mailed` says whether the e-mail was sent; empty: no e-mail was to be sent."""

    user: User
    link: str
    mailed: str = ""


def may_give(asks: User, role: Group) -> bool:
    """Whether the person who asks has every permission of the role, and so may give it."""
    held = asks.get_all_permissions()
    names = role.permissions.values_list("content_type__app_label", "codename")
    return asks.is_superuser or all(f"{app}.{codename}" in held for app, codename in names)


def invite(asks: User, *, name: str, email: str, role: Group, base: str) -> Invited:
    """
    Make an account with the role, and the link with which its owner signs in for the first time.

    Args:
        name: The account's name, to sign in with.
        email: The address to which the link is mailed, if mail is configured; may be empty.
        base: The installation's address: `https://queueops.example.com`.

    Raises:
        AccountExists, RoleNotYours, InvitedByProvider: No account was made.
    """
    if settings.QUEUEOPS.password_sign_in == ONLY:
        raise InvitedByProvider
    if not may_give(asks, role):
        raise RoleNotYours(fields={"role": [RoleNotYours.__doc__ or ""]})
    with transaction.atomic():
        if User.objects.filter(username__iexact=name).exists():
            raise AccountExists(fields={"name": [f"There is an account {name} already."]})
        if email and (holder := User.objects.filter(email__iexact=email).first()):
            raise AccountExists(fields={"email": [f"It is the address of the account {holder.username}."]})
        user = User.objects.create_user(name, email, is_staff=True)
        user.groups.add(role)
        after = {"username": name, "email": email, "groups": [role.name]}
        trail.record(actor=f"user:{asks.pk}", action="invite_user", target=f"user {user.pk}", after=after)
    return _with_link(user, asks, base)


@transaction.atomic
def invite_again(asks: User, user: User, *, base: str) -> Invited:
    """
    Make another link for somebody who has not signed in yet. Earlier links become invalid.

    Raises:
        NothingToInvite, InvitedByProvider, RoleNotYours
    """
    if settings.QUEUEOPS.password_sign_in == ONLY:
        raise InvitedByProvider
    user = User.objects.select_for_update(of=("self",)).get(pk=user.pk)
    if not is_waited_for(user):
        raise NothingToInvite
    # Whoever has the link gets the account. Without this check, inviting again could give an administrator more rights.
    if not asks.is_superuser and not user.get_all_permissions() <= asks.get_all_permissions():
        raise RoleNotYours
    user.password = make_password(None)
    user.save(update_fields=["password"])
    trail.record(actor=f"user:{asks.pk}", action="invite_user_again", target=f"user {user.pk}")
    return _with_link(user, asks, base)


def is_waited_for(user: User) -> bool:
    """Whether somebody was invited, or made without a password, and has not signed in yet."""
    return user.is_active and not user.has_usable_password() and not user.identities.exists()


@transaction.atomic
def accept(user: User, token: str, password: str) -> User | None:
    """Set the password that an invited person has chosen; None: another request was faster, or the link is invalid."""
    found = User.objects.select_for_update(of=("self",)).filter(pk=user.pk).first()
    if found is None or not is_waited_for(found) or not tokens.check_token(found, token):
        return None
    found.set_password(password)
    found.save(update_fields=["password"])
    trail.record(actor=f"user:{found.pk}", action="accept_invitation", target=f"user {found.pk}")
    return found


def _with_link(user: User, asks: User, base: str) -> Invited:
    named = [urlsafe_base64_encode(force_bytes(user.pk)), tokens.make_token(user)]
    link = base.rstrip("/") + reverse("access:invited", args=named)
    if not (settings.QUEUEOPS.email_url and user.email):
        return Invited(user, link)
    mail = EmailMessage(
        subject="[QueueOps] You are invited",
        body=f"{asks.get_full_name() or asks.username} invites you to QueueOps as {user.username}.\n\n"
        f"Choose your password here, once, within {LASTS_HOURS} hours:\n{link}\n",
        to=[user.email],
    )
    try:
        mail.send()
    except (OSError, smtplib.SMTPException) as error:
        return Invited(user, link, f"It could not be mailed to {user.email}: {error}. Hand it over yourself.")
    return Invited(user, link, f"It was mailed to {user.email}.")
