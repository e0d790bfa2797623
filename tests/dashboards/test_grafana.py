"""The Grafana dashboard asks for metrics that exist, all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dashboards.metrics.catalogue import METRICS
from tests.support.processes import ROOT

DASHBOARD = json.loads((ROOT / "deploy/grafana/queueops.json").read_text(encoding="utf-8"))
MONITOR = (ROOT / "docs/how-to/monitor.md").read_text(encoding="utf-8")


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bqueueops_[a-z_]+", text))


def exported() -> set[str]:
    found = set()
    for metric in METRICS.values():
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.exported + part for part in parts}
    return found


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def labels_of(metric: str) -> set[str]:
    name = re.sub(r"_(total|bucket|sum|count)$", "", metric.removeprefix("queueops_"))
    return {*METRICS[name].labels, "instance", "le"}


def test_every_metric_that_the_dashboard_names_is_exported():
    assert names_in(json.dumps(DASHBOARD)) <= exported()


def test_the_dashboard_shows_every_metric():
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names_in(" ".join(expressions()))}
    left_out = {"queueops_limit_counters", "queueops_limit_shadow_denials", "queueops_executor_leases_lost"}
    assert {metric.exported for metric in METRICS.values()} - shown == left_out


def test_every_label_that_the_dashboard_filters_or_groups_by_exists():
    for expression in expressions():
        allowed: set[str] = set().union(*(labels_of(name) for name in names_in(expression)))
        grouped = ", ".join(re.findall(r"by \(([^)]*)\)", expression))
        filtered = ", ".join(re.findall(r"\{([^}]*)\}", expression))
        used = {*re.findall(r"\w+", grouped), *re.findall(r"(\w+)=", filtered)}
        assert used <= allowed, expression


def test_the_page_for_operators_names_metrics_that_exist():
    assert names_in(MONITOR) <= exported() | {metric.exported for metric in METRICS.values()}


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
