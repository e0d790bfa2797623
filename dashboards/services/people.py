"""Who the actors are that services and the audit trail name."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import User

OF_USERS = "user:"


def names_of(actors: Iterable[str]) -> dict[str, str]:
    """Return the names of those actors that are accounts, by the actor: `{"user:7": "anna"}`."""
    pks = {actor.removeprefix(OF_USERS) for actor in actors if actor.startswith(OF_USERS)}
    wanted = [int(pk) for pk in pks if pk.isdecimal()]
    if not wanted:
        return {}
    return {f"{OF_USERS}{pk}": name for pk, name in User.objects.filter(pk__in=wanted).values_list("pk", "username")}
