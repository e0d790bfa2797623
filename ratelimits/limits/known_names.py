"""
Names that people may type: the known services, kinds and models.

A limit or a pause may be made before the first job, so an unknown name is reported and never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from queueops.core.values.near_names import nearest
from queueops.tenancy.models import Credential, Project
from ratelimits.models import Price

MAX_SUGGESTED = 200


class KnownName(StrEnum):
    SERVICE = "service"
    KIND = "kind"
    MODEL = "model"
    PROJECT = "project"


_TOLD = {
    KnownName.SERVICE: "No job has ever called {!r}.",
    KnownName.KIND: "No handler carries out {!r}.",
    KnownName.MODEL: "No job has ever asked for the model {!r}.",
    KnownName.PROJECT: "There is no project {!r}.",
}
_sources: dict[KnownName, list[Callable[[], Iterable[str]]]] = {
    KnownName.SERVICE: [lambda: Credential.objects.order_by().values_list("service", flat=True)],
    KnownName.KIND: [],
    KnownName.MODEL: [lambda: Price.objects.order_by().values_list("model", flat=True).distinct()],
    KnownName.PROJECT: [lambda: Project.objects.values_list("pk", flat=True)],
}


def also_known(what: KnownName, names: Callable[[], Iterable[str]]) -> None:
    """Register another part of the system as a source of names. That part calls this when it starts."""
    _sources[what].append(names)


def names_known(what: KnownName) -> set[str]:
    return {name for source in _sources[what] for name in source() if name}


def suggested(*wanted: KnownName) -> list[str]:
    """Return the known names of these sorts, for a field to offer; at most MAX_SUGGESTED."""
    return sorted({name for what in wanted for name in names_known(what)})[:MAX_SUGGESTED]


def unheard_of(what: KnownName, name: str) -> list[str]:
    """Return a message about an unknown name; no message about a known or empty name."""
    if not name or name in (known := names_known(what)):
        return []
    return [_TOLD[what].format(name) + nearest(name, known)]
