import keyword
import re
from argparse import ArgumentParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

NAME_RULE = re.compile(r"[a-z][a-z0-9_]{0,40}")

HANDLER = '''\
from pydantic import BaseModel, ConfigDict

from jobs.handlers.registry import Done, RunningJob, handler


class {model}(BaseModel):
    model_config = ConfigDict(extra="forbid")  # a misspelt field is refused, and not dropped

    text: str


@handler(kind="{app}.{name}", service="{app}", payload={model}, idempotent=False)
async def {name}(job: RunningJob[{model}]) -> Done:
    """Say here what one job does."""
    return Done({{"characters": len(job.payload.text)}})
'''

TEST = """\
import pytest
from pydantic import ValidationError

from jobs.testing import run_handler
from {app}.handlers import {name}  # noqa: F401 - registers the kind


def test_a_job_counts_its_characters():
    assert run_handler("{app}.{name}", {{"text": "hello"}}).result == {{"characters": 5}}


def test_a_payload_without_text_is_refused():
    with pytest.raises(ValidationError):
        run_handler("{app}.{name}", {{}})
"""


class Command(BaseCommand):
    help = "Write a handler in ten lines, and its test, into an app of your own. Nothing is overwritten."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="Of the function and its module; the kind becomes APP.NAME.")
        parser.add_argument("--app", required=True, help="A package in this directory; made if it is missing.")

    def handle(self, *args: Any, name: str, app: str, **options: Any) -> None:
        for word in (name, app):
            if not NAME_RULE.fullmatch(word) or keyword.iskeyword(word):
                raise CommandError(f"{word!r}: use lower-case letters, digits and underscores.")
        package = self._package(app)
        model = "".join(part.title() for part in name.split("_"))
        if (package / "handlers.py").exists():
            raise CommandError(
                f"{app}/handlers.py exists. Move it to {app}/handlers/<name>.py, with an empty "
                "__init__.py beside it, so that each handler has a module."
            )
        files = {
            package / "handlers" / f"{name}.py": HANDLER.format(app=app, name=name, model=model),
            package / "tests" / f"test_{name}.py": TEST.format(app=app, name=name),
        }
        if taken := [self._shown(path) for path in files if path.exists()]:
            raise CommandError(f"Nothing was written, because this exists: {', '.join(taken)}")
        for path in files:
            for directory in (package, path.parent):
                directory.mkdir(exist_ok=True)
                (directory / "__init__.py").touch()
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"wrote {self._shown(path)}")
        self._say_what_next(app, name)

    def _package(self, app: str) -> Path:
        """
        Return the directory of the app's package.

        Raises:
            CommandError: The name is taken by a package that is not in this directory.
        """
        package: Path = settings.BASE_DIR / app
        found = find_spec(app)
        if found is not None and found.origin != str(package / "__init__.py") and not package.is_dir():
            raise CommandError(f"{app!r} is the name of another Python package ({found.origin}).")
        return package

    @staticmethod
    def _shown(path: Path) -> str:
        return str(path.relative_to(settings.BASE_DIR))

    def _say_what_next(self, app: str, name: str) -> None:
        self.stdout.write(f'test it:     make test ARGS="{app}"')
        if app not in settings.QUEUEOPS.extra_apps:
            apps = ",".join([*settings.QUEUEOPS.extra_apps, app])
            self.stdout.write(f"install it:  export QUEUEOPS_EXTRA_APPS={apps}   and start again")
        self.stdout.write(f"its kind:    {app}.{name}   (docs/how-to/write-a-handler.md)")
