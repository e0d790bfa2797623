"""The accounts of people for whom a provider vouches, and the roles that its groups give them."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction

from queueops.access.models import Identity
from queueops.audit import trail
from queueops.core.errors import QueueOpsError

from .provider import at

ACTOR = "system:provider"
MAX_NAME = 120  # characters; an account's name may have 150, so a suffix still fits
NO_NAME = re.compile(r"[^\w.@+-]+")


class NoRole(QueueOpsError):
    """You are in none of the groups that may use this installation. Ask your administrator for one."""

    code = "no_role"
    status = 403


class GroupsMissing(QueueOpsError):
    """Your provider has not told which groups you are in, so nothing was changed. Ask your administrator."""

    code = "groups_missing"
    status = 403


class AccountInactive(QueueOpsError):
    """Your account here is deactivated."""

    code = "account_inactive"
    status = 403


def welcome(claims: dict[str, Any]) -> User:
    """
    Return the account of somebody who has signed in at the provider, with the roles that the provider gives now.

    The first sign-in makes an account, or with QUEUEOPS_OIDC_LINK_BY_EMAIL takes an existing one. Roles that
    QUEUEOPS_OIDC_ROLES names are given and taken away; other roles stay as they are. Somebody who has lost all of the
    named roles is no longer staff, which ends their sessions in every browser. Without a claim of groups the sign-in is
    refused, and no role is taken away: Entra ID leaves the claim out for somebody in very many groups.

    Raises:
        NoRole, GroupsMissing, AccountInactive
    """
    if at(claims, settings.QUEUEOPS.oidc_group_claim) is None:
        raise GroupsMissing
    wanted = roles_of(claims)
    with transaction.atomic():
        user = _account(claims, may_make=bool(wanted))
        if user is not None:
            _give(user, claims, wanted)
    if user is None or not wanted:
        raise NoRole
    if not user.is_active:
        raise AccountInactive
    return User.objects.select_related("authenticator").get(pk=user.pk)


def roles_of(claims: dict[str, Any]) -> set[str]:
    """Return the names of the roles that somebody's groups give."""
    told = at(claims, settings.QUEUEOPS.oidc_group_claim)
    groups = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    named = {role for group, role in settings.QUEUEOPS.oidc_roles if group in groups}
    return set(Group.objects.filter(name__in=named).values_list("name", flat=True))


def unknown_roles() -> list[str]:
    """Return the roles that QUEUEOPS_OIDC_ROLES names and that do not exist."""
    named = {role for _, role in settings.QUEUEOPS.oidc_roles}
    return sorted(named - set(Group.objects.filter(name__in=named).values_list("name", flat=True)))


def is_second_factor_shown(claims: dict[str, Any]) -> bool:
    """Whether the provider says that it has asked for a second factor."""
    enough, methods = settings.QUEUEOPS.oidc_second_factor, claims.get("amr")
    return "*" in enough or (isinstance(methods, list) and any(one in enough for one in methods))


def _account(claims: dict[str, Any], *, may_make: bool) -> User | None:
    who = {"issuer": settings.QUEUEOPS.oidc_issuer, "subject": str(claims["sub"])}
    # If one person signs in twice at once for the first time, the second waits here and finds the first one's account.
    lock = int.from_bytes(hashlib.sha256(repr(who).encode()).digest()[:8], signed=True)
    with transaction.get_connection().cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock])
    known = Identity.objects.filter(**who).select_related("user").first()
    if known is not None or not may_make:
        return known.user if known is not None else None
    user = _same_address(claims)
    if user is None:
        user = User.objects.create_user(_free_name(claims, **who), is_staff=True)
        trail.record(actor=ACTOR, action="add_user", target=f"user {user.pk}", after={"username": user.username})
    Identity.objects.create(user=user, **who)
    trail.record(actor=ACTOR, action="link_account", target=f"user {user.pk}", after=who)
    return user


def _same_address(claims: dict[str, Any]) -> User | None:
    address = claims.get("email")
    if not settings.QUEUEOPS.oidc_link_by_email or not address or claims.get("email_verified") is not True:
        return None
    # Never a superuser's account: otherwise whoever assigns addresses at the provider could take over the installation.
    found = User.objects.filter(email__iexact=address, is_superuser=False, identities=None)[:2]
    return found[0] if len(found) == 1 else None


def _free_name(claims: dict[str, Any], *, issuer: str, subject: str) -> str:
    told = next((claims[name] for name in ("preferred_username", "email") if isinstance(claims.get(name), str)), "")
    name = NO_NAME.sub("-", told).strip("-")[:MAX_NAME] or "person"
    if not User.objects.filter(username__iexact=name).exists():
        return name
    return f"{name}-{hashlib.sha256(f'{issuer} {subject}'.encode()).hexdigest()[:8]}"


def _give(user: User, claims: dict[str, Any], wanted: set[str]) -> None:
    ours = {role for _, role in settings.QUEUEOPS.oidc_roles}
    before = set(user.groups.values_list("name", flat=True))
    after = (before - ours) | wanted
    told = {"email": ("email", 254), "given_name": ("first_name", 150), "family_name": ("last_name", 150)}
    for claim, (field, most) in told.items():
        if isinstance(value := claims.get(claim), str) and "\0" not in value:
            setattr(user, field, value[:most])
    if before != after or user.is_staff != bool(wanted):
        trail.record(
            actor=ACTOR,
            action="change_roles",
            target=f"user {user.pk}",
            before={"groups": sorted(before), "is_staff": user.is_staff},
            after={"groups": sorted(after), "is_staff": bool(wanted)},
        )
    user.is_staff = bool(wanted)
    user.save(update_fields=["email", "first_name", "last_name", "is_staff"])
    user.groups.set(Group.objects.filter(name__in=after))
