"""The documents name files that exist, link to what is there, and are found from the first page."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

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


def test_every_link_leads_somewhere():
    assert [f"{name_of(page)}: {to}" for page in PAGES for to in links_of(page) if not to.exists()] == []


def test_every_file_that_is_named_exists():
    for page in INSIDE:
        named = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text(encoding="utf-8"))
        assert named, page
        assert [path for path in named if not (ROOT / path).exists()] == [], page


def test_every_page_is_found_from_the_first():
    found, new = set(), {DOCS / "index.md"}
    while new:
        found |= new
        new = {link for link in chain.from_iterable(map(links_of, new)) if link.suffix == ".md"} - found
    assert [name_of(page) for page in DOCS.rglob("*.md") if page not in found] == []


def test_every_decision_ends_with_when_to_reopen_it():
    ending = re.compile(r"\n## Reopen when\n\n[^\n#][^#]*\Z")
    assert len(DECISIONS) > 60  # they were found
    assert [name_of(page) for page in DECISIONS if not ending.search(page.read_text(encoding="utf-8"))] == []
