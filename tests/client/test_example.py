"""The worked example runs as its page says: an app that is offline for a while and killed once counts every token."""

import re
import subprocess
import sys

import pytest
from django.utils import timezone

from demo import usage
from queueops.tenancy.models import ProducerKey, Scope
from ratelimits.usage.ledger import check_ledger
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support.processes import ROOT
from tests.support.sandbox import Sandbox

EXAMPLES = ROOT / "clients/python/examples"
PROJECT = "demo"


@pytest.mark.usefixtures("transactional_db")
def test_an_app_that_was_offline_and_killed_has_counted_every_token(sandbox: Sandbox):
    usage.ensure_usage(make_project(PROJECT).pk, actor="user:1", at=timezone.now())
    _, key = ProducerKey.issue(make_project(PROJECT), name="app", scopes=[Scope.USAGE])
    with web_process() as (address, _):
        told = subprocess.run(
            [sys.executable, EXAMPLES / "offline_and_killed.py", f"--server={address}", f"--model={sandbox.url}"],
            env={"QUEUEOPS_KEY": key, "PYTHONPATH": str(ROOT / "clients/python/src")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.endswith("exact\n")
    assert shape(told.stdout) == shape((EXAMPLES / "README.md").read_text().split("```")[3])
    assert check_ledger(PROJECT).differences == []


def shape(output: str) -> list[str]:
    """The lines without their figures; how many calls were under way at the kill differs."""
    lines = [re.sub(r"[\d,]+", "0", line).split() for line in output.strip().splitlines()]
    return [" ".join(words) for words in lines if words[:1] != ["app:"]]
