"""What a process imports at its start: each executor is a process, and each import is waited for at every restart."""

from __future__ import annotations

import subprocess
import sys

from django.contrib import admin
from django.core import checks

from tests.support import screens
from tests.support.processes import ROOT

OURS = ("queueops", "jobs", "ratelimits", "dashboards", "demo")
WHAT_A_CLUSTER_IMPORTS = """
import sys
import django
django.setup()
from django.core.management import get_commands, load_command_class
command = load_command_class(get_commands()["qcluster"], "qcluster")
assert not command.requires_system_checks
print(*sys.modules)
"""


def test_workers_import_no_screens_and_no_addresses():
    ran = subprocess.run(
        [sys.executable, "-c", WHAT_A_CLUSTER_IMPORTS], cwd=ROOT, check=True, capture_output=True, text=True
    )
    imported = [name for name in ran.stdout.split() if name.startswith(OURS)]
    assert "jobs.executor.pump" in imported
    assert [name for name in imported if {"admin", "api", "urls", "views"} & set(name.split("."))] == []


def test_django_finds_nothing_wrong_with_the_screens():
    """`manage.py check` may look at them before the addresses have registered them."""
    assert list(screens.registered())
    found = admin.site.check(None)
    assert [message for message in found if message.level >= checks.WARNING] == []
