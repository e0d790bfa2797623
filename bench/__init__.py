"""
Benchmarks: `python -m bench.<name> [--json FILE] [--full]`; docs/reference/benchmarks.md says what each asks.

Django is set up here, because models cannot be imported before. The default settings are measured, whatever the shell
sets. A process that a benchmark starts loads `bench.harness` as an app: its settings are already made.
"""

import os

import django
from django.conf import settings


def _set_up() -> None:
    from queueops.core.embedded.host import default_data_dir

    from .harness.report import ROOT

    for name in [name for name in os.environ if name.startswith("QUEUEOPS_")]:
        del os.environ[name]
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "queueops.settings",
        "QUEUEOPS_DATA_DIR": str(default_data_dir(ROOT) / "bench"),
        "QUEUEOPS_EXTRA_APPS": "bench.harness",
        "QUEUEOPS_LOG_LEVEL": "WARNING",
        "QUEUEOPS_REQUESTS_PER_MINUTE": "10000000",
    }
    django.setup()


if not settings.configured:
    _set_up()
