"""The site of docs/: built strictly, nothing from elsewhere, nothing that the strict policy of browsers forbids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from queueops.site.documents.proofs import PROOFS
from tests.support.all_faults import all_faults
from tests.support.processes import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target: Path = tmp_path_factory.mktemp("site") / "docs"
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target)))  # strict: a broken link or a page left out fails
    return target


def test_no_page_has_a_script_in_itself_or_anything_from_elsewhere(site):
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*(?:src=|application/json))[^>]*>", html), page
        assert not re.search(r"<style|\son\w+=", html), page
        assert not re.search(r'(?:src|srcset)="(?:https?:)?//', html), page
        assert not re.search(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="(?:https?:)?//', html), page


def test_language_models_are_told_of_every_page_and_read_it_as_markdown(site):
    listed = set(re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text(encoding="utf-8")))
    docs = ROOT / "docs"
    assert listed == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert all(
        (site / path).read_text(encoding="utf-8") == (docs / path).read_text(encoding="utf-8") for path in listed
    )


def test_every_test_that_is_named_as_a_proof_is_there():
    with all_faults() as of:
        for test in (test for proof in PROOFS for test in proof.tests):
            path, _, name = test.partition("::")
            head = rf"^(async )?def {name.partition('[')[0]}\("
            with of(test):
                assert re.search(head, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE) is not None
