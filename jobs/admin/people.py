"""Actors as people know them."""

from __future__ import annotations

from django.contrib.auth.models import User


def name_of(actor: str) -> str:
    """`anna` for `user:7`; other actors as they are."""
    kind, _, key = actor.partition(":")
    if kind != "user" or not key.isdigit():
        return actor
    return User.objects.filter(pk=int(key)).values_list("username", flat=True).first() or actor
