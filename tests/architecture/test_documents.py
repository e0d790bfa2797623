"""The documents name files that exist, link to what is there, and are found from the first page."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from tests.support.all_faults import all_faults
from tests.support.processes import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
DECISIONS = sorted((DOCS / "adr").glob("0*.md"))
# For those who change the code: they name files by their paths from the root.
INSIDE = [ROOT / "CONTRIBUTING.md", DOCS / "explanation/architecture.md", DOCS / "how-to/change-the-code.md"]
REOPENED = re.compile(r"\n## Reopen when\n\n[^\n#][^#]*\Z")
FOLDERS = "bench|clients|dashboards|deploy|docs|jobs|queueops|ratelimits|sandbox|templates|tests"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links_of(page: Path) -> set[Path]:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_every_link_leads_somewhere():
    with all_faults() as of:
        for page in PAGES:
            with of(name_of(page)):
                assert [str(target) for target in links_of(page) if not target.exists()] == []


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
    assert len(DECISIONS) > 60  # they were found
    with all_faults() as of:
        for page in DECISIONS:
            with of(name_of(page)):
                assert REOPENED.search(page.read_text(encoding="utf-8")), "does not say"
