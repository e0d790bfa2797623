"""Makes, changes and deletes routes of models, and finds the route of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction

from queueops.audit import trail
from queueops.core.postgres.unique_names import faults_of, save_named
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.models import Credential, CredentialPool
from queueops.tenancy.secrets.credentials import usable_by
from ratelimits.limits.known_names import MAX_SUGGESTED
from ratelimits.models import Price

from .errors import BadModelRoute, NoModelRoute, UnknownModelRoute
from .models import REST, ModelRoute, Protocol

FIGURES = ("place", "pattern", "provider", "credential", "service")
MAX_ROUTES = 200  # routes of one project
MAX_MODELS = 1_000  # models in a list
TAKEN = {"pattern": ["Another route of the project is for it, by the same provider's protocol."]}


@transaction.atomic
def save_route(
    route_id: UUID | None, figures: Mapping[str, Any], *, project_id: str, actor: str, reason: str = ""
) -> ModelRoute:
    """
    Make a route, or change one. It holds for requests from then on.

    Args:
        route_id: None: a new one.
        figures: The fields to set, by their names in FIGURES; the others stay as they are.

    Raises:
        BadModelRoute: With the path of each bad field. Nothing was changed.
        UnknownModelRoute
    """
    new = route_id is None
    route = ModelRoute(project_id=project_id) if route_id is None else _locked(route_id, project_id)
    before = None if new else told_route(route)
    for name, value in figures.items():
        setattr(route, name, value)
    if new and ModelRoute.objects.filter(project_id=project_id).count() >= MAX_ROUTES:
        raise BadModelRoute(f"A project has at most {MAX_ROUTES} routes.")
    check_route(route)
    if save_named(route, force_insert=new):
        raise BadModelRoute(fields=TAKEN)
    action = f"{'create' if new else 'change'}_model_route"
    _record(route, action, before=before, after=told_route(route), actor=actor, reason=reason)
    return route


def check_route(route: ModelRoute) -> None:
    """
    Raises:
        BadModelRoute: With the path of each bad field.
    """
    faults = faults_of(route)
    if faults.pop("name", None):
        faults |= TAKEN
    if "credential" not in faults and "provider" not in faults:
        found = usable_by(route.project_id).get(route.credential)
        if found is None or found.service != route.service_name:
            fault = f"The project may not use a credential {route.credential!r} for {route.service_name}"
            faults["credential"] = [f"{fault}, or it does not exist."]
    if faults:
        raise BadModelRoute(fields=faults)


@transaction.atomic
def delete_route(route_id: UUID, *, project_id: str, actor: str, reason: str = "") -> None:
    """
    Raises:
        UnknownModelRoute
    """
    route = _locked(route_id, project_id)
    _record(route, "delete_model_route", before=told_route(route), after=None, actor=actor, reason=reason)
    route.delete()


def routes_of(project_id: str) -> list[ModelRoute]:
    """
    Return a project's routes in the order in which they are tried: by place, then whole names before patterns with
    `*`, then longer patterns before shorter ones.
    """
    rows = ModelRoute.objects.filter(project_id=project_id)
    return sorted(rows, key=lambda row: (row.place, row.pattern.endswith(REST), -len(row.pattern), row.pattern))


def route_for(routes: Sequence[ModelRoute], model: str, provider: Protocol) -> ModelRoute:
    """
    Return the route of a model.

    Raises:
        NoModelRoute: There is none, or it leads to a server that speaks another protocol.
    """
    fitting = [route for route in routes if route.fits(model)]
    if not fitting:
        raise NoModelRoute(
            f"No route of this project takes the model {model!r}. Make one in the admin under “Model routes”, or: "
            f"manage.py model_routes set PROJECT {model!r} --provider {provider.value} --credential NAME",
            fields={"model": ["No route of this project takes the model"]},
        )
    found = next((route for route in fitting if route.provider == provider), None)
    if found is None:
        raise NoModelRoute(
            f"The route {fitting[0].pattern!r} leads to {fitting[0].provider}, and this request is {provider.value}'s: "
            f"nothing is translated here. Make a route for {model!r} to {provider.value}, or ask by llm.generate.",
            fields={"model": ["nothing is translated here"]},
        )
    return found


def known_models(project_id: str) -> list[tuple[str, str]]:
    """Return the models that a project's routes name, or that fit a route and have a price: (name, service), sorted."""
    routes = routes_of(project_id)
    found = {route.pattern: route.service_name for route in routes if not route.pattern.endswith(REST)}
    services = {route.service_name for route in routes}
    priced = Price.objects.filter(provider__in=services).order_by("provider", "model")
    for provider, model in priced.values_list("provider", "model").distinct():
        route = next((one for one in routes if one.fits(model)), None)
        if route is not None and route.service_name == provider and len(found) < MAX_MODELS:
            found.setdefault(model, provider)
    return sorted(found.items())


def service_of_model(name: str, project_id: str) -> str | None:
    """Return the service that calls of a model go to; None: no route takes it."""
    return next((route.service_name for route in routes_of(project_id) if route.fits(name)), None)


def credentials_known() -> list[str]:
    """The names of credentials, and of pools of them, that a form offers; at most MAX_SUGGESTED."""
    pools = CredentialPool.objects.values_list("name")
    return [name for (name,) in Credential.objects.values_list("name").union(pools).order_by("name")[:MAX_SUGGESTED]]


def told_route(route: ModelRoute) -> dict[str, Any]:
    return {name: getattr(route, name) for name in FIGURES}


def _locked(route_id: UUID, project_id: str) -> ModelRoute:
    found = ModelRoute.objects.select_for_update().filter(pk=route_id, project_id=project_id).first()
    if found is None:
        raise UnknownModelRoute(route_id=str(route_id))
    return found


def _record(
    route: ModelRoute,
    action: str,
    *,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    actor: str,
    reason: str,
) -> None:
    trail.record(
        actor=actor,
        action=action,
        target=f"model route {route.pk}",
        before=before,
        after=after,
        reason=clean_reason(reason),
        project_id=route.project_id,
    )
