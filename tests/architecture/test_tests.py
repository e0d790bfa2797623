"""What several tests use is in tests/support: whoever imports a test breaks with it, and runs without it no more."""

from __future__ import annotations

import ast
import re

from tests.support.processes import ROOT

FOLDERS = ("tests", "clients/python/tests")
MAY_IMPORT_A_TEST = re.compile(r"^\s*(?:from|import)\b[^#\n]*\btest_|^\s*from .*\(\n", re.MULTILINE)


def imported_tests(source: str) -> set[str]:
    """The test modules, and tests, that a module imports by any form of the statement."""
    names = set()
    if MAY_IMPORT_A_TEST.search(source):  # to parse every module takes seconds
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {f"{node.module or ''}.{alias.name}" for alias in node.names}
    return {name for name in names if any(part.startswith("test_") for part in name.split("."))}


def test_no_module_of_the_tests_imports_a_test():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {path: imported_tests(path.read_text(encoding="utf-8")) for path in paths}
    told = [f"{path.relative_to(ROOT)}: {', '.join(sorted(names))}" for path, names in found.items() if names]
    assert not told, "\n".join(sorted(told))


def test_every_form_of_an_import_is_seen():
    for form in (
        "import tests.a.test_b",
        "from tests.a.test_b import c",
        "from tests.a import c, test_b",
        "from . import test_b",
        "from .test_b import c",
        "def f():\n    from tests.a import (\n        c,\n        test_b,\n    )",
    ):
        assert imported_tests(form), form
    assert imported_tests("from tests.a import b\nfrom jobs.testing import drain\nimport test") == set()
