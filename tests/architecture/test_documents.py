"""The documents name files that exist, link to what is there, and are found from the first page."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import yaml
from django.utils.module_loading import autodiscover_modules

from queueops.core import generated_docs
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


def promise_of(page: Path) -> str:
    """Return what a reader can do by the page's first sentence; empty: it does not say."""
    found = re.match(r"# .+\n\nAfter this page you can (.+)\.\n\n", page.read_text(encoding="utf-8"))
    return found[1] if found else ""


def read_navigation() -> list[dict[str, list[str]]]:
    """The groups of the site, each with the pages that the first page lists: of folders the decisions' own list."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    groups = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    return [
        {
            name: [
                path if isinstance(path, str) else "adr/README.md"
                for path in pages
                if path != {"Runbooks": "runbooks/"}
            ]
        }
        for group in groups
        for name, pages in group.items()
    ]


def test_every_link_leads_somewhere():
    with all_faults() as of:
        for page in PAGES:
            with of(name_of(page)):
                assert [str(target) for target in links_of(page) if not target.exists()] == []


def test_few_pictures_are_kept_and_each_is_shown():
    kept = {path for form in ("png", "jpg", "webp") for path in DOCS.rglob(f"*.{form}")}
    assert kept <= set(chain.from_iterable(map(links_of, PAGES)))
    assert len(kept) <= 6  # each drawing of all has new bytes, which git keeps for good


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


def test_every_page_opens_with_what_its_reader_can_do():
    with all_faults() as of:
        for page in DOCS.rglob("*.md"):
            with of(name_of(page)):
                assert page in DECISIONS or promise_of(page)


def test_the_first_page_has_the_groups_of_the_navigation_and_the_promise_of_each_page():
    told = {
        heading: re.findall(r"^- \[[^\]]+\]\(([^)]+\.md)\): (.+)\.$", body, re.MULTILINE)
        for heading, body in re.findall(
            r"^## (.+)\n\n((?:- .+\n)+)", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    groups = {name: pages for group in read_navigation() for name, pages in group.items()}
    assert list(told) == list(groups)
    with all_faults() as of:
        for name, pages in groups.items():
            with of(name):
                assert [path for path, _ in told[name]] == [path for path in pages if path != "index.md"]
                assert [promise for _, promise in told[name]] == [promise_of(DOCS / path) for path, _ in told[name]]


def test_every_decision_ends_with_when_to_reopen_it():
    assert len(DECISIONS) > 60  # they were found
    with all_faults() as of:
        for page in DECISIONS:
            with of(name_of(page)):
                assert REOPENED.search(page.read_text(encoding="utf-8")), "does not say"


def test_every_page_that_says_it_is_written_is_written():
    """A module that registers pages is found by its name: moved, it would write none, and nobody would miss them."""
    autodiscover_modules("docs")
    says = {path for path in DOCS.rglob("*.md") if "Written by `manage.py write_docs`" in path.read_text()}
    assert {str(path.relative_to(DOCS)) for path in says} == {*generated_docs.PAGES}
    assert generated_docs.stale_pages(DOCS) == []
