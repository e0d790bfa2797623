"""The samples in the pages are of this version: code, commands, addresses and JSON that a reader may copy."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.urls import Resolver404, resolve

from queueops_client.cli.commands import queueops
from tests.support.all_faults import all_faults
from tests.support.processes import ROOT

PAGES = sorted(
    page
    for page in [
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("clients/*/README.md"),
        ROOT / "README.md",
        ROOT / "examples/README.md",
    ]
    if "adr" not in page.parts
)
FENCE = re.compile(r"^ *```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"(?:\$QUEUEOPS|/api/v1)(?P<path>/[\w/{}<>…$.-]*)")
NAMED = re.compile(r"`(?:GET|POST|PUT|PATCH|DELETE) (?P<path>/[^`\s?]*)[^`]*`")
OURS = {"queueops_client", "jobs", "queueops", "ratelimits"}
ELSEWHERE = ("/metrics", "/healthz", "/readyz", "/ws/")  # answered before Django's addresses
AN_ID = "018f6a52-0000-7000-8000-000000000001"


class Sample(NamedTuple):
    """A block of a page."""

    page: Path
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def samples(*kinds: str) -> Iterator[Sample]:
    for page in PAGES:
        whole = page.read_text()
        for found in FENCE.finditer(whole):
            if found["kind"] in kinds:
                yield Sample(page, whole.count("\n", 0, found.start()) + 1, found["kind"], found["text"])


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Each call of a program in the pages: its place, and its arguments without pipes and redirections."""
    for sample in samples("", "sh", "bash"):
        for line in re.sub(r"\\\n\s*", " ", sample.text).splitlines():
            for part in re.split(r"\s(?:\||&&|\|\|)\s|;\s|\s#\s", line.removeprefix("$ ")):
                with suppress(ValueError):  # a quote that goes on in the next line
                    words = shlex.split(part)
                    while words and (
                        re.fullmatch(r"\w+=.*", words[0]) or words[0] in {"sudo", "exec", "python", "docker", "time"}
                    ):
                        words.pop(0)
                    if words and Path(words[0]).name == program:
                        end = next((place for place, word in enumerate(words) if re.fullmatch(r"\d?>.*|<", word)), None)
                        yield f"{sample.place} {part.strip()}", words[1:end]


def test_every_call_of_the_command_is_one_that_it_takes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("QUEUEOPS_CREDENTIAL", "demo-openai")
    with all_faults() as of:
        for place, arguments in commands("queueops"):
            with of(place):
                context = queueops.make_context("queueops", list(arguments))
                name, command, rest = queueops.resolve_command(context, [*context._protected_args, *context.args])
                while isinstance(command, click.Group):
                    context = command.make_context(name, rest, parent=context)
                    name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
                assert command is not None
                command.make_context(name, rest, parent=context)


def test_every_call_of_manage_py_is_one_that_it_takes():
    known = get_commands()
    with all_faults() as of:
        for place, arguments in commands("manage.py"):
            with of(place):
                name, *rest = arguments
                command: Any = known[name]
                command = load_command_class(command, name) if isinstance(command, str) else command
                command._called_from_command_line = False
                command.create_parser("manage.py", name).parse_args(rest)


def paths() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        whole = page.read_text()
        for form in (ADDRESS, NAMED):
            for found in form.finditer(whole):
                if not found["path"].startswith(ELSEWHERE):
                    yield f"{page.relative_to(ROOT)}:{whole.count(chr(10), 0, found.start()) + 1}", found["path"]


def test_every_address_of_the_api_is_there():
    with all_faults() as of:
        for place, path in paths():
            with of(f"{place} {path}"):
                full = path if path.startswith("/api/") else f"/api/v1{path}"
                full = re.sub(r"\{[^}]*\}|<[^>]*>|\$\w+|[0-9a-f]{8}-…|…", AN_ID, urlsplit(full).path)
                try:
                    resolve(full)
                except Resolver404:
                    resolve(f"{full}/")


def test_json_and_yaml_can_be_read():
    with all_faults() as of:
        for sample in samples("json"):
            if "…" not in sample.text:
                with of(sample.place):
                    json.loads(sample.text)
        for sample in samples("yaml"):
            with of(sample.place):
                list(yaml.safe_load_all(sample.text))


def test_python_has_its_imports_and_finds_what_it_imports_of_ours(tmp_path: Path):
    """The blocks of a page are one program."""
    of_page: dict[Path, list[str]] = {}
    for sample in samples("python"):
        of_page.setdefault(sample.page, []).append(textwrap.dedent(sample.text))
    with all_faults() as of:
        for page, texts in of_page.items():
            program = "\n".join(texts)
            (tmp_path / f"{page.stem.replace('-', '_')}.py").write_text(program)
            for node in ast.walk(ast.parse(program)):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OURS:
                    module = import_module(node.module)
                    for name in node.names:
                        with of(f"{page.name} {node.module}.{name.name}"):
                            assert hasattr(module, name.name)
    rules = ["--isolated", "--select", "F821,F401", "--output-format", "concise"]
    check = [sys.executable, "-m", "ruff", "check", *rules, "."]
    told = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
