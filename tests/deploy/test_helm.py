"""The chart of deploy/helm gives what deploy/kubernetes has, and moves the tables before a new version starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.deployment import DEPLOY, KUBERNETES, manifests
from tests.support.go_templates import render

CHART = DEPLOY / "helm"
TEMPLATES = sorted((CHART / "templates").iterdir())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
HELM = shutil.which("helm")


def rendered(**changed: Any) -> list[dict[str, Any]]:
    texts = [render(path.read_text(encoding="utf-8"), {**VALUES, **changed}) for path in TEMPLATES]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def named(found: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def without_settings(one: dict[str, Any]) -> dict[str, Any]:
    """What is no secret comes from a ConfigMap in plain manifests, and from the values in a chart."""
    settings = set(VALUES["settings"])
    pod = one.get("spec", {}).get("jobTemplate", one).get("spec", {}).get("template", {}).get("spec")
    for container in pod["containers"] if pod else ():
        container["envFrom"] = [source for source in container["envFrom"] if "secretRef" in source]
        container["env"] = [given for given in container.get("env", []) if given["name"] not in settings]
        container["image"] = container["image"].partition(":")[0]
    one["metadata"].pop("annotations", None) if one["kind"] == "Job" else None
    return one


def test_the_chart_has_what_the_plain_manifests_have_and_their_settings():
    files = [path.name for path in KUBERNETES.glob("*.yaml") if path.stem not in {"kustomization", "scaling"}]
    plain = named([found for name in files for found in manifests(name)])
    assert plain.pop(("ConfigMap", "queueops"))["data"] == VALUES["settings"]
    plain.pop(("Namespace", "queueops"))  # helm is told where
    chart = named(rendered())
    assert chart.keys() == plain.keys()
    for name, one in plain.items():
        assert without_settings(chart[name]) == without_settings(one), name


def test_its_values_reach_the_pods_and_the_tables_are_moved_first(tmp_path: Path):
    image = "registry.example.org/queueops@sha256:" + "0" * 64
    found = named(rendered(image=image, host="q.example.org", settings={"A": 'say "yes"'}, web={"replicas": 5}))
    web = found["Deployment", "web"]["spec"]
    assert (web["replicas"], web["template"]["spec"]["containers"][0]["image"]) == (5, image)
    assert found["Ingress", "web"]["spec"]["rules"][0]["host"] == "q.example.org"
    for name in (("Deployment", "web"), ("Deployment", "workers"), ("Job", "migrate")):
        env = found[name]["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "A", "value": 'say "yes"'} in env
    annotations = found["Job", "migrate"]["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation", "a Job cannot be changed"
    assert ("CronJob", "backup") not in named(rendered(backup={**VALUES["backup"], "enabled": False}))
    (tmp_path / "chart.yaml").write_text(yaml.safe_dump_all(found.values()), encoding="utf-8")
    checker = Path(sys.executable).with_name("kubernetes-validate")
    checked = subprocess.run(
        (checker, "--strict", tmp_path / "chart.yaml"), capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


if HELM:  # Debian has none: elsewhere the renderer of tests/support alone reads the chart

    def test_helm_renders_the_same():
        done = subprocess.run((str(HELM), "template", "queueops", CHART), capture_output=True, text=True, check=True)
        assert named([one for one in yaml.safe_load_all(done.stdout) if one]) == named(rendered())


def test_the_example_for_cloudnativepg_makes_what_the_plain_sql_makes():
    found = named(list(yaml.safe_load_all((DEPLOY / "cloudnativepg.yaml").read_text(encoding="utf-8"))))
    cluster = found["Cluster", "database"]["spec"]
    made = cluster["bootstrap"]["initdb"]["postInitSQL"]
    plain = [line.strip(";") for line in (DEPLOY / "database.sql").read_text(encoding="utf-8").splitlines()]
    wanted = [line for line in plain if line.startswith(("CREATE ROLE queueops_", "GRANT", "ALTER ROLE queueops SET"))]
    assert set(wanted) <= set(made)
    [limit] = [line for line in made if "CONNECTION LIMIT" in line]
    assert int(limit.split()[-1]) < int(cluster["postgresql"]["parameters"]["max_connections"])
    assert cluster["postgresql"]["synchronous"]["number"] == 1
    assert found["ScheduledBackup", "nightly"]["spec"]["cluster"]["name"] == "database"
