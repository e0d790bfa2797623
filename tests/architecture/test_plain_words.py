"""The checker of comments and docstrings, which `make check` runs, finds what it is to find."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tests.support.cases import every_case

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "plain_words.py"
LONG = "word " * 31


def checker() -> Any:
    spec = spec_from_file_location("plain_words", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every_case(
    ("source", "whys"),
    [
        ('"""Count jobs."""\n', []),
        ('"""What a producer asks for."""\n', ["opens with What"]),
        ('"""\nCount jobs. Of those that wait, none.\n"""\n', ["opens with Of"]),
        ('"""\nCount.\n\nAttributes:\n    jobs: Of a batch.\n"""\n', []),
        ("x = 1  # Who runs it is not known.\n", ["opens with Who"]),
        ("# It begins here\n# and goes on. So it is one passage.\nx = 1\n", ["opens with So"]),
        ('x: int = 1\n"""What it is."""\n', ["opens with What"]),
        ("# What an outage holds stays with what waits: that is known.\n", ["opens with What"]),
        (f"# {LONG}\nx = 1\n", ["31 words, at most 30"]),
        ("x = 1  # noqa: S101 - What is this?\n", []),
        ('def f() -> None:\n    """Nor that."""\n', ["opens with Nor"]),
    ],
)
def test_python(source, whys):
    plain = checker()
    found = [why for passage in plain.python_passages(source) for why, _ in plain.faults_of(passage)]
    assert found == whys


@every_case(
    ("source", "whys"),
    [
        ("-- Count jobs.\nSELECT 1\n", []),
        ("SELECT 1\n    -- Of these, none.\n", ["opens with Of"]),
        ("-- Count.\n--\n-- params  ids: of jobs\n", []),
    ],
)
def test_sql(source, whys):
    plain = checker()
    found = [why for passage in plain.sql_passages(source) for why, _ in plain.faults_of(passage)]
    assert found == whys


def test_it_names_file_line_and_sentence(tmp_path, capsys):
    (tmp_path / "bad.py").write_text("x = 1\n# What is it?\n")
    assert checker().main([str(tmp_path)]) == 1
    assert "bad.py:2: opens with What: What is it?" in capsys.readouterr().out
    (tmp_path / "bad.py").write_text("x = 1\n")
    assert checker().main([str(tmp_path)]) == 0
