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


@pytest.fixture
def without_sidebar(settings: Any) -> None:
    """The list of the screens is the same on every page, and takes as long to draw as the rest of it."""
    settings.UNFOLD = {**settings.UNFOLD, "SIDEBAR": {**settings.UNFOLD["SIDEBAR"], "navigation": []}}
