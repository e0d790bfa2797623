"""`manage.py new_handler`: what it writes works as it is."""

import ast
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from tests.support.cases import every_case
from tests.support.processes import ROOT


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch) -> Path:
    """Let the command write below a directory of the test's own."""
    monkeypatch.setattr(settings, "BASE_DIR", tmp_path)
    return tmp_path


def new_handler(name: str, app: str) -> str:
    output = StringIO()
    call_command("new_handler", name, app=app, stdout=output)
    return output.getvalue()


def test_a_new_handler_passes_its_own_test(checkout: Path):
    said = new_handler("count_words", "my_reports")
    assert "QUEUEOPS_EXTRA_APPS=my_reports" in said
    source = (checkout / "my_reports/handlers/count_words.py").read_text()
    [function] = [node for node in ast.parse(source).body if isinstance(node, ast.AsyncFunctionDef)]
    assert function.name == "count_words"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), str(checkout)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{checkout}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout


def test_an_app_may_have_many_handlers(checkout: Path):
    new_handler("one", "my_reports")
    new_handler("two", "my_reports")
    assert sorted(path.name for path in (checkout / "my_reports/handlers").glob("[a-z]*.py")) == [
        "one.py",
        "two.py",
    ]


def test_nothing_is_overwritten(checkout: Path):
    new_handler("one", "my_reports")
    written = checkout / "my_reports/handlers/one.py"
    written.write_text("mine")
    (checkout / "my_reports/tests/test_one.py").unlink()
    with pytest.raises(CommandError, match=r"my_reports/handlers/one\.py"):
        new_handler("one", "my_reports")
    assert written.read_text() == "mine"
    assert not (checkout / "my_reports/tests/test_one.py").exists()


def test_a_module_of_handlers_is_not_shadowed(checkout: Path):
    (checkout / "my_reports").mkdir()
    (checkout / "my_reports/handlers.py").touch()
    with pytest.raises(CommandError, match=r"handlers\.py exists"):
        new_handler("one", "my_reports")


@every_case(("name", "app"), [("Bad", "mine"), ("class", "mine"), ("ok", "../etc"), ("ok", "json"), ("ok", "django")])
def test_a_name_that_cannot_be_used_is_refused(checkout: Path, name: str, app: str):
    with pytest.raises(CommandError):
        new_handler(name, app)
    assert list(checkout.iterdir()) == []
