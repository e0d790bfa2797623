"""
Every file of `<app>/sql/` says what its statement does, truly, and has a caller.

A header is a paragraph of what the statement does, then `params`, `locks`, `clock` and `returns`; where it matters,
`order` before `locks`. `params` is `none`, or `name, name (remark): meaning; name: meaning`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from jobs.states import JobState
from ratelimits.models import UsageReservation
from tests.support.all_faults import all_faults
from tests.support.sql_files import APPS, FILES, FRAGMENTS, package_of, statement_of

RUNS_SQL = {"run_sql", "run_sql_as", "load_sql"}
KEYS = ("params", "locks", "clock", "returns")
STATUS = r"(?:\b\w*status|%\(target\)s::text)"
STATUSES = {"jobs": set(JobState.values), "ratelimits": set(UsageReservation.Status.values)}


def test_a_header_is_whole_and_says_what_the_statement_takes():
    with all_faults() as of:
        for path in FILES:
            with of(path.stem):
                purpose, parts = _header(path)
                statement = statement_of(path)
                assert re.match(r"[A-Z].*[.]$", purpose, flags=re.DOTALL), "no sentence says what it does"
                assert [key for key in parts if key in KEYS] == list(KEYS)
                assert _named(parts["params"]) == set(re.findall(r"%\((\w+)\)s", statement))
                for clock in re.findall(r"\b(?:now|(?:clock|statement)_timestamp)\(\)", statement):
                    assert clock in parts["clock"]


def test_a_statement_has_a_caller():
    named = _named_by_callers()
    with all_faults() as of:
        for path in FILES:
            with of(path.stem):
                assert path.stem in named, "nobody runs it"


def test_a_statement_quotes_states_that_exist():
    with all_faults() as of:
        for path in FILES:
            with of(path.stem):
                statement = statement_of(path)
                quoted = re.findall(rf"{STATUS}\s*(?:=|<>|(?:NOT )?IN)\s*(\(?(?:'\w+'(?:,\s*)?)+)", statement)
                quoted += re.findall(rf"CASE (?:\w+\.)?{STATUS} (WHEN .*?)END", statement, flags=re.DOTALL)
                words = {word for text in quoted for word in re.findall(r"(?<!THEN )(?<!ELSE )'(\w+)'", text)}
                assert words <= STATUSES.get(package_of(path), set())


def test_a_fragment_says_what_it_is_and_stands_in_several_statements_and_nowhere_by_hand():
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    parts = {path: path.read_text(encoding="utf-8") for path in FRAGMENTS}
    with all_faults() as of:
        for path in FRAGMENTS:
            with of(path.stem):
                assert next(_lines(path)).startswith("-- ")
                own = {file: text for file, text in texts.items() if package_of(file) == package_of(path.parent)}
                text = path.read_text(encoding="utf-8").partition("\n")[2]
                words = r"\s+".join(re.escape(word).replace(r"job\.", r"(?:\w+\.)?") for word in text.split())
                within = [part for file, part in parts.items() if package_of(file) == package_of(path.parent)]
                includes = re.compile(rf"\{{\{{{path.stem}[ }}]")
                assert sum(bool(includes.search(text)) for text in [*own.values(), *within]) > 1
                assert [file.stem for file, text in own.items() if re.search(words, text)] == []


def _header(path: Path) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what follows each word that begins a part."""
    lines = [line[2:].removeprefix(" ") for line in _lines(path)]
    purpose = "\n".join(lines).partition("\n\n")[0]
    parts: dict[str, str] = {}
    for line in lines:
        begins = re.match(rf"({'|'.join(KEYS)}|order) +(?=\S)", line)
        if begins:
            key = begins[1]
            assert key not in parts, f"two parts {key}"
            parts[key] = line[begins.end() :]
        elif parts and line.startswith(" "):
            parts[key] += f" {line.strip()}"
    return purpose, parts


def _lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("--"):
            return
        yield line


def _named(params: str) -> set[str]:
    if params == "none":
        return set()
    without_remarks = re.sub(r"\([^()]*\)", "", params)
    names = ",".join(meaning.partition(":")[0] for meaning in without_remarks.split(";"))
    return {name.strip() for name in names.split(",")}


def _named_by_callers() -> set[str]:
    """What modules that run statements name. Some choose one of several first, and run it by its variable."""
    named: set[str] = set()
    for app in APPS:
        for module in (settings.BASE_DIR / app).rglob("*.py"):
            source = module.read_text(encoding="utf-8")
            tree = list(ast.walk(ast.parse(source))) if any(f"{name}(" in source for name in RUNS_SQL) else []
            if any(isinstance(node, ast.Call) and getattr(node.func, "id", "") in RUNS_SQL for node in tree):
                named |= {node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return named
