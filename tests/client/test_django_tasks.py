"""`django.tasks` of a site of its own: an installation, known by address and key, carries its tasks out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support import outside_app
from tests.support.processes import manage

pytestmark = pytest.mark.django_db(transaction=True)

APP = outside_app.__name__
TASKS = {"QUEUEOPS_EXTRA_APPS": APP, "QUEUEOPS_WORKERS": "1"}
SITE = f"""
import json, sys, time
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["{APP}"],
    USE_TZ=True,
    TASKS={{"default": {{"BACKEND": "queueops_client.django_tasks.QueueOpsApiBackend", "QUEUES": []}}}},
)
django.setup()
from {APP}.tasks import add, fail
assert "jobs" not in sys.modules

def ended(result):
    until = time.monotonic() + 60
    while not result.is_finished:
        assert time.monotonic() < until, result
        time.sleep(0.05)
        result.refresh()
    return result

good, bad = ended(add.enqueue(17, right=5)), ended(fail.enqueue())
again = add.get_result(good.id)
refused = {{}}
for name, call in {{
    "no such id": lambda: add.get_result("018f6a52-0000-7000-8000-000000000001"),
    "no id": lambda: add.get_result("mine"),
    "no JSON": lambda: add.enqueue(object()),
}}.items():
    try:
        call()
    except Exception as error:
        refused[name] = type(error).__name__
print(json.dumps({{
    "good": [good.status, good.return_value, again.return_value, again.attempts, again.task.queue_name, again.args],
    "bad": [bad.status, bad.errors[0].exception_class.__name__, bad.errors[0].traceback],
    "refused": refused,
}}))
"""


def told_by_site(tmp_path: Path, environ: dict[str, str]) -> dict[str, Any]:
    """The words of a site that has the app and the client, and nothing else of QueueOps."""
    home = tmp_path / APP.replace(".", "/")
    shutil.copytree(Path(str(outside_app.__file__)).parent, home, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (home.parent, home.parent.parent):
        (folder / "__init__.py").touch()
    (tmp_path / "site.py").write_text(SITE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "QUEUEOPS"))}
    given = kept | environ | {"PYTHONPATH": str(tmp_path)}
    run = [sys.executable, "-P", "site.py"]
    told = subprocess.run(run, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def test_a_site_of_its_own_has_its_tasks_carried_out_by_an_installation(tmp_path: Path):
    key = ProducerKey.issue(make_project("tasks"), name="site")[1]
    with web_process(**TASKS) as (address, _), manage("qcluster", environ=TASKS) as workers:
        workers.wait_for_output("is ready")
        told = told_by_site(tmp_path, {"QUEUEOPS_URL": address, "QUEUEOPS_KEY": key})
    assert told["good"] == ["SUCCESSFUL", 22, 22, 1, "mail", [17]]
    assert told["bad"][:2] == ["FAILED", "TaskNotSuccessful"]
    assert "there is no such invoice" in told["bad"][2]
    missing = "TaskResultDoesNotExist"
    assert told["refused"] == {"no such id": missing, "no id": missing, "no JSON": "TypeError"}
