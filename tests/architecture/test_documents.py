"""The documents name files that exist, link to what is there, and are found from the first page."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.support.processes import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
DECISIONS = sorted((DOCS / "adr").glob("0*.md"))
# For those who change the code: they name files by their paths from the root.
INSIDE = [ROOT / "CONTRIBUTING.md", DOCS / "explanation/architecture.md", DOCS / "how-to/change-the-code.md"]
FOLDERS = "bench|clients|dashboards|deploy|docs|jobs|queueops|ratelimits|sandbox|templates|tests"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links_of(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    assert [str(target) for target in links_of(page) if not target.exists()] == []


@pytest.mark.parametrize("page", INSIDE, ids=name_of)
def test_every_file_that_is_named_exists(page):
    named = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_is_found_from_the_first():
    found, new = set(), {DOCS / "index.md"}
    while new:
        found |= new
        new = {link for link in chain.from_iterable(map(links_of, new)) if link.suffix == ".md"} - found
    assert [name_of(page) for page in DOCS.rglob("*.md") if page not in found] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=name_of)
def test_every_decision_ends_with_when_to_reopen_it(decision):
    assert re.search(r"\n## Reopen when\n\n[^\n#][^#]*\Z", decision.read_text(encoding="utf-8"))
