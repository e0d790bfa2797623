"""The steps of every change of a limit: finding it, refusing unsound figures, notifying every process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.forms.models import model_to_dict

from queueops.core.notify import Channel, notify
from queueops.tenancy.models import PROJECT_ID
from ratelimits.errors import InvalidLimit, UnknownLimit
from ratelimits.models import Limit

from . import catalogue
from .validation import Findings

EDITABLE = frozenset(model_to_dict(Limit())) - {"id"}


@dataclass(frozen=True, slots=True)
class SavedLimit:
    """
    Attributes:
        changed: The names of the fields that have another value now.
        warnings: Consequences of the figures that may surprise.
    """

    limit_id: int
    changed: tuple[str, ...]
    warnings: tuple[str, ...]


def find_limit(limit_id: int, *, lock: bool = False) -> Limit:
    """
    Raises:
        UnknownLimit.
    """
    # Without `no_key`, an alert that refers to the limit would wait for this lock while its counters are locked.
    rows = Limit.objects.select_for_update(no_key=True) if lock else Limit.objects.all()
    limit = rows.filter(pk=limit_id).first()
    if limit is None:
        raise UnknownLimit(limit_id=limit_id)
    return limit


def figures_of(limit: Limit) -> dict[str, Any]:
    """The figures of a limit that can be changed, by the names of its fields."""
    return {name: value for name, value in model_to_dict(limit).items() if name in EDITABLE}


def require_sound(found: Findings) -> None:
    """
    Raises:
        InvalidLimit: There are faults; the error has them by field.
    """
    if found.faults:
        count = sum(map(len, found.faults.values()))
        message = "One figure is not valid." if count == 1 else f"{count} figures are not valid."
        raise InvalidLimit(message, fields=found.faults)


def announce_change() -> None:
    """Have every process read the limits again: this one now and at the commit, the others by NOTIFY."""
    notify(Channel.LIMITS)
    catalogue.forget()
    # Until the commit another thread of this process may read the old figures again.
    transaction.on_commit(catalogue.forget)


def project_of(key: str) -> str:
    """The project that a counter's key names, for the audit trail; empty: the key names none, or only a provider's."""
    name = key.removeprefix("project:").partition("/")[0] if key.startswith("project:") else ""
    return name if PROJECT_ID.fullmatch(name) else ""
