"""The services, kinds and models that jobs have or can have, to check names that people type."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.handlers.registry import all_handlers, served_names
from jobs.models import SINCE_EVER, DecisionTotal, FlowSample, PauseSwitch
from ratelimits.limits.known_names import KnownName, also_known, unheard_of

Scope = PauseSwitch.Scope
NAMED_BY_SCOPE = {Scope.PROJECT: KnownName.PROJECT, Scope.SERVICE: KnownName.SERVICE, Scope.KIND: KnownName.KIND}


def tell() -> None:
    """Register the sources of known names, when the app starts."""
    also_known(KnownName.SERVICE, _services)
    also_known(KnownName.KIND, _kinds)
    also_known(KnownName.MODEL, _models)


def _services() -> Iterable[str]:
    yield from (one.service for one in all_handlers() if isinstance(one.service, str))
    yield from FlowSample.objects.filter(span_seconds=SINCE_EVER).order_by().values_list("service", flat=True)


def _kinds() -> Iterable[str]:
    yield from (one.kind for one in all_handlers() if not one.internal)
    yield from served_names()


def _models() -> Iterable[str]:
    return DecisionTotal.objects.order_by().values_list("model", flat=True).distinct()


def unheard_of_scope(scope: str, key: str) -> list[str]:
    """Say that the name in a pause is unknown; empty if it is known."""
    named = NAMED_BY_SCOPE.get(Scope(scope))
    return unheard_of(named, key) if named else []
