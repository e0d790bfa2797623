"""Time is read in one place: a statement with a clock of its own would go by real time in a test that moves it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.support.processes import ROOT

PACKAGES = ("dashboards", "demo", "jobs", "queueops", "ratelimits")
CLOCK = re.compile(
    r"\b(?:now|(?:clock|statement|transaction)_timestamp)\(\)|\b(?:current_|local)timestamp\b", re.IGNORECASE
)
NAMED = re.compile(rf"(?<!timezone\.)(?:{CLOCK.pattern})|\b(?-i:(?:Transaction)?Now)\b", re.IGNORECASE)
OF_DJANGO = {"Now", "TransactionNow"}
REAL = {
    "queueops/core/clock.py": "the place",
    "queueops/core/postgres/archiver.py": "since a segment arrived, which PostgreSQL tells",
    "queueops/core/postgres/horizon.py": "since the start of a transaction, which PostgreSQL tells",
    "queueops/core/postgres/replica.py": "compared with what another server has replayed",
    "queueops/site/backup.py": "names a copy",
    "queueops/site/diagnosis/database.py": "compared with this machine's clock",
    "queueops/site/moving/move.py": "compared with the start of transactions, and on two servers",
}


@cache
def modules() -> dict[str, ast.Module]:
    """Those that may name a clock; to parse all takes seconds."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    texts = {path: path.read_text(encoding="utf-8") for path in files if "migrations" not in path.parts}
    assert len(texts) > 500  # they were found
    return {str(path.relative_to(ROOT)): ast.parse(text) for path, text in texts.items() if NAMED.search(text)}


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What is no docstring."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def compared_by_django(tree: ast.Module) -> Iterator[ast.expr]:
    """Each use of Django's own clocks that is not a column's default."""
    defaults = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "db_default"}
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django.")
        for alias in node.names
        if alias.name in OF_DJANGO
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in defaults:
            named = isinstance(node.func, ast.Name) and node.func.id in names
            reached = isinstance(node.func, ast.Attribute) and node.func.attr in OF_DJANGO
            if named or (reached and ast.unparse(node.func) != "clock.Now"):
                yield node


def test_no_statement_of_a_file_names_a_clock_of_its_own():
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("sql/**/*.sql"))]
    faults = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if CLOCK.search(line.partition("--")[0])
    ]
    assert len(files) > 100  # they were found
    assert faults == [], "write {{now}}, {{clock_now}} or {{statement_now}}"


def test_no_statement_in_code_names_a_clock_of_its_own():
    found = {name: [line for line, text in texts(tree) if CLOCK.search(text)] for name, tree in modules().items()}
    found = {name: lines for name, lines in found.items() if lines}
    assert {name: lines for name, lines in found.items() if name not in REAL} == {}, "use queueops.core.clock"
    assert set(found) == set(REAL)  # none of them is exempt for nothing


def test_the_orm_compares_with_our_clock_and_leaves_defaults_to_django_s():
    found = {name: [node.lineno for node in compared_by_django(tree)] for name, tree in modules().items()}
    assert {name: lines for name, lines in found.items() if lines} == {}, "import Now from queueops.core.clock"
