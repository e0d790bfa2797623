"""Names of actors that people know."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import User

from queueops.tenancy.models import Issuer, ProducerKey

OF_USERS = "user:"


def name_of(actor: str) -> str:
    """
    Return `anna` for `user:7`, `key imports (qo_1a2b…)` for a producer's key, and `user … of the app` for an end user
    whose token's issuer is named `the app`. Other actors are returned unchanged.
    """
    kind, _, key = actor.partition(":")
    if kind == "token":
        issuer, _, user = key.partition(":")
        app = Issuer.objects.filter(pk=issuer).values_list("name", flat=True).first() if issuer.isdigit() else None
        return f"user {user} of {app}" if app else actor
    if kind == "key" and key:
        name = ProducerKey.objects.filter(prefix=key).values_list("name", flat=True).first()
        return f"key {name} ({key}…)" if name else actor
    if kind != "user" or not key.isdigit():
        return actor
    return User.objects.filter(pk=int(key)).values_list("username", flat=True).first() or actor


def names_of(actors: Iterable[str]) -> dict[str, str]:
    """Return the names of the actors that are accounts: `{"user:7": "anna"}`."""
    pks = {actor.removeprefix(OF_USERS) for actor in actors if actor.startswith(OF_USERS)}
    wanted = [int(pk) for pk in pks if pk.isdecimal()]
    if not wanted:
        return {}
    return {f"{OF_USERS}{pk}": name for pk, name in User.objects.filter(pk__in=wanted).values_list("pk", "username")}
