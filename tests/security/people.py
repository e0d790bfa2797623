"""Signing in as a browser does."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client

from queueops.access.models import Authenticator
from queueops.access.services import second_factor
from queueops.site import roles

PASSWORD = "a long enough password"
LOGIN = "/admin/login/"
CODE = "/admin/login/code/"
SET_UP = "/admin/second-factor/"


def person(name: str = "ann", *, role: str | None = None, **fields: Any) -> User:
    user = User.objects.create_user(name, password=PASSWORD, **{"is_staff": True, **fields})
    if role:
        roles.make_groups()
        user.groups.add(Group.objects.get(name=role))
    return user


def try_password(
    name: str, password: str = PASSWORD, *, client: Client | None = None, address: str = "10.0.0.1"
) -> Any:
    form = {"username": name, "password": password}
    return (client or Client()).post(LOGIN, form, REMOTE_ADDR=address)


def is_signed_in(client: Client) -> bool:
    return client.get("/admin/").status_code == 200


def with_second_factor(user: User) -> tuple[bytes, list[str]]:
    """Set one up; its next code is fresh."""
    secret = second_factor.new_secret()
    code = second_factor.code_at(secret, second_factor.current_step())
    authenticator, recovery_codes = second_factor.set_up(user, secret, code, actor=f"user:{user.pk}")
    Authenticator.objects.filter(pk=authenticator.pk).update(last_step=authenticator.last_step - 10)
    return secret, recovery_codes


def code_now(secret: bytes) -> str:
    return second_factor.code_at(secret, second_factor.current_step())


def wrong_code(secret: bytes) -> str:
    """Six digits that are no code of any step that would be taken."""
    now = second_factor.current_step()
    taken = {second_factor.code_at(secret, step) for step in range(now - 3, now + 4)}
    return next(code for code in (f"{number:06}" for number in range(10)) if code not in taken)
