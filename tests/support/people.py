"""People who sign in to the admin."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from queueops.site import roles


def signed_in(role: str | None) -> Client:
    """A browser session of somebody with one of the shipped roles; `superuser`; None: staff without any."""
    roles.make_groups()
    name = f"{role or 'nobody'}-{User.objects.count()}"
    person = User.objects.create_user(name, password="a long enough password", is_staff=True)
    if role == "superuser":
        User.objects.filter(pk=person.pk).update(is_superuser=True)
    elif role:
        person.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(User.objects.get(pk=person.pk))
    return client


def session_of(role: str | None) -> str:
    """The session's key of somebody signed in."""
    return signed_in(role).session.session_key or ""


def permitted(*codenames: str, is_staff: bool = True, **options: Any) -> Client:
    """A browser session of somebody with these permissions alone; `options` are the client's."""
    user = User.objects.create_user(f"user{User.objects.count()}", is_staff=is_staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client(**options)
    client.force_login(user)
    return client
