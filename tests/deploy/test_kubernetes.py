"""The manifests keep Kubernetes' schemas, belong together, and say what QueueOps needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from dashboards.metrics.middleware import PROBES
from jobs.models import Executor
from tests.factories import make_jobs
from tests.support.all_faults import all_faults
from tests.support.deployment import (
    DRAIN_SECONDS,
    KUBERNETES,
    PATIENCE_OF_MIGRATE,
    WORKERS_STOP_SECONDS,
    is_command,
    manifests,
)

OPTIONAL = "scaling.yaml"
FILES = sorted(path.name for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml")
ALL = [found for name in FILES for found in manifests(name)]
PODS = {
    found["metadata"]["name"]: found["spec"].get("jobTemplate", found)["spec"]["template"]
    for found in ALL
    if found["kind"] in {"Deployment", "Job", "CronJob"}
}


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in ALL if found["kind"] == kind]


def selects(selector: dict[str, Any], template: dict[str, Any]) -> bool:
    labels = template["metadata"]["labels"]
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    return exact and all(labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", ()))


def test_each_keeps_the_schemas_of_kubernetes():
    checker = Path(sys.executable).with_name("kubernetes-validate")
    files = [KUBERNETES / name for name in FILES if name != OPTIONAL]
    checked = subprocess.run((checker, "--strict", *files), capture_output=True, text=True, check=False)
    said = checked.stdout + checked.stderr
    assert checked.returncode == 0, said
    assert "WARN" not in said  # a kind that it does not know
    assert [path.name for path in files if path.name not in said] == []


def test_kustomize_has_every_file_but_what_needs_keda():
    [kustomization] = manifests("kustomization.yaml")
    assert {*kustomization["resources"], OPTIONAL} == set(FILES)


def test_each_pod_starts_a_command_that_exists_and_may_do_nothing_else_and_has_its_secrets_by_name():
    with all_faults() as of:
        for name, pod in PODS.items():
            spec = pod["spec"]
            [container] = spec["containers"]
            with of(name):
                if name == "backup":
                    assert container["command"][0] == "deploy/backup.sh"
                else:
                    assert is_command(container["args"][0])
                assert spec["securityContext"]["runAsNonRoot"] is True
                assert spec["automountServiceAccountToken"] is False
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }
                assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108 - the pod's own
                assert {"secretRef": {"name": "queueops"}} in container["envFrom"]
    assert of_kind("Secret") == []


def test_work_under_way_is_given_its_time_to_end():
    assert PODS["workers"]["spec"]["terminationGracePeriodSeconds"] >= WORKERS_STOP_SECONDS
    web = PODS["web"]["spec"]
    pause = int(web["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert web["terminationGracePeriodSeconds"] > pause + DRAIN_SECONDS


def test_migrate_waits_briefly_for_a_table_in_use_and_tries_again():
    spec = PODS["migrate"]["spec"]
    assert spec["containers"][0]["env"] == [{"name": "PGOPTIONS", "value": PATIENCE_OF_MIGRATE}]
    assert spec["restartPolicy"] == "OnFailure"


def test_probes_ask_what_there_is():
    [container] = PODS["web"]["spec"]["containers"]
    asked = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(asked.values()) <= set(PROBES)


def test_whatever_selects_pods_selects_some():
    for kind in ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service"):
        for found in of_kind(kind):
            selector = found["spec"].get("podSelector", found["spec"].get("selector"))
            if kind == "Service":
                selector = {"matchLabels": selector}
            assert any(selects(selector, template) for template in PODS.values()), found["metadata"]["name"]


def test_every_pod_may_reach_the_database_and_only_web_and_workers_the_world():
    policies = {found["metadata"]["name"]: found["spec"] for found in of_kind("NetworkPolicy")}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert all(selects(policies["database"]["podSelector"], template) for template in PODS.values())
    outside = {name for name, template in PODS.items() if selects(policies["providers"]["podSelector"], template)}
    assert outside == {"web", "workers"}


@pytest.mark.django_db
def test_keda_scales_by_calls_under_way_and_what_nothing_holds_back_a_bounded_part():
    [scaled] = of_kind("ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] in PODS
    assert scaled["spec"]["minReplicaCount"] >= 1
    [trigger] = scaled["spec"]["triggers"]
    [authentication] = of_kind("TriggerAuthentication")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]

    def wanted() -> int:
        with connection.cursor() as cursor:
            cursor.execute(trigger["metadata"]["query"])
            [value] = cursor.fetchone()
            return int(value)

    assert wanted() == 0
    Executor.objects.create(host="a", pid=1, process_started_at=0, cluster_pid=1, slots=200, in_flight=150)
    make_jobs(5, project="acme")
    assert wanted() == 155
    make_jobs(2_100, project="acme")
    assert wanted() == 2_150
