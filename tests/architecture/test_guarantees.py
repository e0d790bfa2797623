"""Every guarantee has a test that proves it, and tests name no guarantee that there is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from queueops.site.documents.guarantees import GUARANTEES, Proof, find_proofs
from tests.support.all_faults import all_faults
from tests.support.processes import ROOT


@pytest.fixture(scope="module")
def proofs() -> dict[str, list[Proof]]:
    """Found by reading every test, so not at import."""
    return find_proofs(ROOT)


def test_every_guarantee_of_the_specification_is_listed():
    assert [f"R{number}" for number in range(1, 22)] == [row for row in GUARANTEES if row[0] == "R"]
    assert [f"S{number}" for number in range(1, 17)] == [row for row in GUARANTEES if row[0] == "S"]


def test_every_guarantee_is_proved_where_every_change_is_tested(proofs: dict[str, list[Proof]]):
    with all_faults() as of:
        for row in GUARANTEES:
            with of(row):
                assert proofs[row], f"no test is marked with proves({row!r})"
                assert {proof.form for proof in proofs[row]} - {"soak"}, f"only the soak proves {row}"


def test_no_test_names_a_guarantee_that_is_none(proofs: dict[str, list[Proof]]):
    assert proofs.keys() <= GUARANTEES.keys()


def test_the_page_has_a_line_for_each_guarantee_and_one_for_each_proof(proofs: dict[str, list[Proof]]):
    lines = (ROOT / "docs/reference/guarantees.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("### ")]
    assert headings == [f"### {row}: {text.removesuffix('.')}" for row, text in GUARANTEES.items()]
    assert len([line for line in lines if line.startswith("- ")]) == sum(map(len, proofs.values()))
    assert max(map(len, lines)) < 250


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('@pytest.mark.proves("R1", "R2")\ndef test_a(): ...', {"R1": "short", "R2": "short"}),
        ('@pytest.mark.soak\n@pytest.mark.proves("R1")\ndef test_a(): ...', {"R1": "soak"}),
        (
            (
                'F = [pytest.param(2, marks=pytest.mark.soak)]\npytestmark = [pytest.mark.proves("R1")]\n'
                '@pytest.mark.parametrize("f", F)\ndef test_a(f): ...'
            ),
            {"R1": "short and soak"},
        ),
        ("def test_a(): ...", {}),
    ],
)
def test_marks_are_found_without_importing_a_test(tmp_path: Path, text: str, rows: dict[str, str]):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(text)
    found = find_proofs(tmp_path)
    assert {row: proof.form for row, [proof] in found.items()} == rows
