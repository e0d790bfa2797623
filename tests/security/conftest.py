"""Settings for one test, and people with a second factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as project_settings

PASSWORD = "a long enough password"


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Change what the environment set: `configure(lockout_failures=3)`."""

    def change(**values: Any) -> None:
        settings.QUEUEOPS = replace(project_settings.QUEUEOPS, **values)

    return change
