"""Issuers, read from the database for each request with a token: tokens of a disabled issuer are refused at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F

from queueops.core.clock import Now
from queueops.tenancy.models import Issuer

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class KnownIssuer:
    """
    An issuer, as its row was read.

    Attributes:
        secret: The sealed shared secret; None: the issuer publishes keys.
        jwks: The public keys that were fetched last, each with its parts.
        fetched_seconds_ago, tried_seconds_ago: How long ago the keys were fetched, and a fetch was last begun.
        has_failed: Whether the last fetch failed.
        move: Whether its project has moved to another installation, and where.
    """

    id: int
    project_id: str
    issuer: str
    audiences: tuple[str, ...]
    scopes: tuple[str, ...]
    leeway_seconds: int
    jwks_url: str
    secret: bytes | None = field(repr=False)
    jwks: list[dict[str, str]]
    fetched_seconds_ago: float
    tried_seconds_ago: float
    has_failed: bool
    move: tuple[str, str] = ("", "")


def find_issuer(name: str) -> KnownIssuer | None:
    """Return the enabled issuer that tokens name in `iss`; None: there is none."""
    if not (name.isascii() and name.isprintable()):
        return None  # PostgreSQL takes neither NUL nor lone surrogates
    return _read(issuer=name, enabled=True)


def read_issuer(pk: int) -> KnownIssuer | None:
    """Return an issuer, enabled or not; None: it was deleted."""
    return _read(pk=pk)


def _read(**conditions: Any) -> KnownIssuer | None:
    row = (
        Issuer.objects.filter(**conditions)
        .annotate(fetched=_age("jwks_fetched_at"), tried=_age("jwks_tried_at"))
        .select_related("project")
        .order_by()
        .first()
    )
    if row is None:
        return None
    return KnownIssuer(
        id=row.pk,
        project_id=row.project_id,
        issuer=row.issuer,
        audiences=tuple(row.audiences),
        scopes=tuple(row.scopes),
        leeway_seconds=row.leeway_seconds,
        jwks_url=row.jwks_url,
        secret=None if row.secret is None else bytes(row.secret),
        jwks=row.jwks,
        fetched_seconds_ago=_seconds(row.fetched),
        tried_seconds_ago=_seconds(row.tried),
        has_failed=bool(row.jwks_error),
        move=(row.project.move, row.project.moved_to),
    )


def _age(name: str) -> ExpressionWrapper[Any]:
    return ExpressionWrapper(Now() - F(name), output_field=DurationField())


def _seconds(age: timedelta | None) -> float:
    return NEVER if age is None else age.total_seconds()
