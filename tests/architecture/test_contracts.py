"""Each import contract of pyproject.toml fails on an import that breaks it."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

import grimp
import pytest
from django.conf import settings
from importlinter import configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from tests.support.all_faults import all_faults

configuration.configure()
SECTION = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["name"]: contract for contract in SECTION["contracts"]}
TYPES = {"layers": LayersContract, "forbidden": ForbiddenContract}

# Who must not import whom: one that goes upwards for each layer, and one for each other contract.
BREACHES = {
    "Imports go one way": [
        ("queueops.core.errors", "queueops.audit.trail"),
        ("queueops.core.errors", "queueops.screens.verbs"),
        ("queueops.screens.verbs", "queueops.audit.trail"),
        ("queueops.audit.trail", "queueops.tenancy.models"),
        ("queueops.tenancy.models", "queueops.rest.views"),
        ("queueops.rest.views", "queueops.access.models"),
        ("queueops.access.models", "ratelimits.models"),
        ("ratelimits.limiter.decide", "jobs.models"),
        ("jobs.services.claim.claim", "dashboards.services.ops"),
        ("dashboards.services.ops", "demo.zones"),
        ("demo.zones", "queueops.site.urls"),
    ],
    "Only jobs.cluster and jobs.forking know django-q2": [("jobs.services.claim.claim", "django_q")],
    "Only dashboards knows channels": [("jobs.services.claim.claim", "channels")],
    "Services translate nothing and call no surface": [("jobs.services.claim.claim", "queueops.screens.verbs")],
    "Of the limiter others know services, models and vocabulary": [
        ("jobs.services.claim.claim", "ratelimits.alerts.admin.alerts")
    ],
    "Of the queue others know services, models, states and vocabulary": [
        ("dashboards.services.ops", "jobs.admin.jobs.screen"),
        ("dashboards.services.ops", "jobs.features.schedules.api"),
    ],
    "The queue's services stand in layers": [
        ("jobs.services.submit.prepare", "jobs.services.operate.job_actions"),
        ("jobs.services.operate.job_actions", "jobs.services.finish.finish"),
        ("jobs.services.finish.finish", "jobs.services.explain.waiting"),
        ("jobs.services.explain.waiting", "jobs.services.claim.lanes"),
        ("jobs.services.claim.claim", "jobs.services.upkeep.executors"),
    ],
    "The path of a job, and what it calls by name, know no add-on": [
        ("jobs.services.submit.submit", "jobs.features.webhooks.tell"),
        ("jobs.services.claim.claim", "jobs.features.batch_lane.steps.collect"),
        ("jobs.services.finish.finish", "jobs.features.flow.flow"),
        ("jobs.executor.pump", "jobs.features.schedules.fire_schedules"),
        ("jobs.handlers.registry", "jobs.features.forecast.costs"),
        ("jobs.features.pools.pools", "jobs.features.watches.watch"),
    ],
    "The limiter's services stand in layers": [
        ("ratelimits.algorithms.kinds", "ratelimits.limits.catalogue"),
        ("ratelimits.limits.catalogue", "ratelimits.alerts.alerts"),
        ("ratelimits.alerts.alerts", "ratelimits.usage.standings"),
        ("ratelimits.usage.reserve", "ratelimits.money.spend"),
        ("ratelimits.money.spend", "ratelimits.limiter.decide"),
        ("ratelimits.limiter.decide", "ratelimits.tuning.limits"),
    ],
    "The executor knows no django-q2": [("jobs.executor.loop", "jobs.cluster")],
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*SECTION["root_packages"], include_external_packages=True, cache_dir=None)


def options_of(section: dict[str, Any], *, without: set[str]) -> dict[str, Any]:
    """As the linter reads them: truth is a word."""
    kept = {key: value for key, value in section.items() if key not in without}
    return {key: str(value) if isinstance(value, bool) else value for key, value in kept.items()}


def is_kept(contract: dict[str, Any], graph: grimp.ImportGraph) -> bool:
    made = TYPES[contract["type"]](
        name=contract["name"],
        session_options=options_of(SECTION, without={"contracts"}),
        contract_options=options_of(contract, without={"name", "type"}),
    )
    return made.check(copy.deepcopy(graph), verbose=False).kept


def test_every_contract_has_a_breach():
    assert BREACHES.keys() == CONTRACTS.keys()


def test_a_breach_of_a_contract_is_found(graph):
    with all_faults() as of:
        for name, importer, imported in ((name, *one) for name, found in BREACHES.items() for one in found):
            with of(f"{name}: {importer} -> {imported}"):
                assert importer in graph.modules
                known = {*graph.modules}
                graph.add_import(importer=importer, imported=imported)
                try:
                    assert not is_kept(CONTRACTS[name], graph), "was not found"
                finally:
                    graph.remove_import(importer=importer, imported=imported)
                    for added in graph.modules - known:
                        graph.remove_module(added)
