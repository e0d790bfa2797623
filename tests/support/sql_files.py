"""The statements of the apps: where they are, and what of each is the statement."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from queueops.core.sql import load_sql

APPS = ("jobs", "ratelimits", "dashboards", "queueops")
FILES = sorted(path for app in APPS for path in (settings.BASE_DIR / app).rglob("sql/*.sql"))
FRAGMENTS = sorted(path for app in APPS for path in (settings.BASE_DIR / app).rglob("sql/fragments/*.sql"))


def statement_of(path: Path) -> str:
    """The file's text without its comments, its fragments in their places."""
    return re.sub(r"--.*", "", load_sql(package_of(path), path.stem))


def package_of(path: Path) -> str:
    """The app, whose folders may have files of their own."""
    app = next(folder for folder in path.parents if (folder / "apps.py").is_file())
    return ".".join(app.relative_to(settings.BASE_DIR).parts)
