"""
Limits to start with: the published defaults of some services, as files in ratelimits/fixtures/.

A limit is identified by its name. An operator's changes to it stay, unless its defaults are loaded with `replace`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.env.environment import declared_settings
from queueops.core.errors import QueueOpsError
from queueops.core.notify import Channel, notify
from ratelimits.algorithms.figures import figure
from ratelimits.models import Limit

from . import catalogue

logger = logging.getLogger(__name__)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
# The limits whose cap comes from the environment instead of the file.
CAPACITY_SETTINGS = {"llm-requests": "rate_limit_rpm", "llm-tokens": "rate_limit_tpm"}


class UnknownDefaults(QueueOpsError):
    """There are no default limits of that name."""

    code = "unknown_defaults"
    status = 422
    detail_fields = ("given", "known")


class LoadOutcome(StrEnum):
    CREATED = "created"
    REPLACED = "replaced"
    KEPT = "kept"  # the limit differs from its defaults, and stays as it is
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Loaded:
    """
    The outcome for one limit.

    Attributes:
        differing: The fields in which it differed from its defaults.
    """

    name: str
    outcome: LoadOutcome
    differing: tuple[str, ...] = ()


def names_of_defaults() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FIXTURES.glob("*.json")))


@transaction.atomic
def load_limits(
    names: Iterable[str], *, replace: bool = False, actor: str = "system:load_limits"
) -> tuple[Loaded, ...]:
    """
    Create the limits of the named files that are missing; executors apply them at once.

    Args:
        replace: Also give limits that exist their default figures again. Overrides and counters stay.

    Raises:
        UnknownDefaults: Nothing was loaded.
    """
    given = list(dict.fromkeys(names))
    known = names_of_defaults()
    if unknown := sorted(set(given) - set(known)):
        raise UnknownDefaults(
            f"There are no default limits {', '.join(unknown)}; there are {', '.join(known)}.",
            given=unknown,
            known=known,
        )
    loaded = tuple(_load(fields, replace=replace, actor=actor) for name in given for fields in default_fields(name))
    if any(one.outcome in (LoadOutcome.CREATED, LoadOutcome.REPLACED) for one in loaded):
        notify(Channel.LIMITS)
        transaction.on_commit(catalogue.forget)
    return loaded


@transaction.atomic
def load_limits_if_none() -> tuple[Loaded, ...]:
    """Load every default into an installation that has no limit at all."""
    return () if Limit.objects.exists() else load_limits(names_of_defaults())


def default_fields(name: str) -> list[dict[str, Any]]:
    """Return the fields of each limit in one file, with the caps from the environment."""
    rows = [row["fields"] for row in json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))]
    for fields in rows:
        if setting := CAPACITY_SETTINGS.get(fields["name"]):
            fields["capacity"] = getattr(settings.QUEUEOPS, setting)
    return rows


def unheeded_settings() -> list[str]:
    """Return messages about caps in the environment that stored limits do not have: only loading applies them."""
    variables = {setting: declared_settings()[setting][0].variable for setting in CAPACITY_SETTINGS.values()}
    stored = dict(Limit.objects.filter(name__in=CAPACITY_SETTINGS).values_list("name", "capacity"))
    found = []
    for name, setting in CAPACITY_SETTINGS.items():
        wanted, variable = getattr(settings.QUEUEOPS, setting), variables[setting]
        if not os.environ.get(variable, "").strip() or stored.get(name) == wanted:
            continue
        says = f"the limit {name} says {figure(stored[name])}" if name in stored else f"there is no limit {name}"
        replace = " --replace" * (name in stored)
        found.append(f"{variable} is {figure(wanted)} and {says}: manage.py load_limits llm{replace}")
    return found


def tell_unheeded_settings() -> None:
    """Log the messages of `unheeded_settings`. For the start of a process that serves or works."""
    for line in unheeded_settings():
        logger.warning("%s", line)


def _load(fields: dict[str, Any], *, replace: bool, actor: str) -> Loaded:
    name = fields["name"]
    limit, created = Limit.objects.select_for_update().get_or_create(name=name, defaults=fields)
    if created:
        trail.record(actor=actor, action="add_limit", target=f"limit {name}", after=fields)
        return Loaded(name, LoadOutcome.CREATED)
    before = {field: getattr(limit, field) for field in fields}
    differing = tuple(field for field in fields if before[field] != fields[field])
    if not differing:
        return Loaded(name, LoadOutcome.SAME)
    if not replace:
        return Loaded(name, LoadOutcome.KEPT, differing)
    Limit.objects.filter(pk=limit.pk).update(**fields, updated_at=Now())
    trail.record(actor=actor, action="change_limit", target=f"limit {name}", before=before, after=fields)
    return Loaded(name, LoadOutcome.REPLACED, differing)
