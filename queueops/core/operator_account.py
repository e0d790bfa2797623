"""The first person who can log in."""

import secrets
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

OPERATOR_NAME = "operator"


@dataclass(frozen=True, slots=True)
class OperatorAccount:
    """
    Attributes:
        password: None unless this call made the account: the password is stored hashed and shown once.
    """

    name: str
    password: str | None


@transaction.atomic
def ensure_operator() -> OperatorAccount:
    """Make the superuser `operator` with a random password, unless somebody of that name exists."""
    if User.objects.filter(username=OPERATOR_NAME).exists():
        return OperatorAccount(OPERATOR_NAME, None)
    password = secrets.token_urlsafe(12)
    User.objects.create_superuser(username=OPERATOR_NAME, password=password)
    return OperatorAccount(OPERATOR_NAME, password)
