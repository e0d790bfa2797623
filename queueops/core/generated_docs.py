"""
Pages of docs/ that are written from the code, so that they cannot drift from it.

An app registers its pages in its `docs.py`, which `manage.py write_docs` imports:

    @generated_page("reference/states.md")
    def states_page() -> str: ...
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Page = Callable[[], str]

PAGES: dict[str, Page] = {}


def generated_page(path: str) -> Callable[[Page], Page]:
    """Register the function that returns a page's whole text, by the page's path below docs/."""

    def register(page: Page) -> Page:
        PAGES[path] = page
        return page

    return register


def write_pages(docs: Path) -> list[str]:
    """Write the pages that differ, and return their paths."""
    stale = stale_pages(docs)
    for path in stale:
        target = docs / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_text(PAGES[path]), encoding="utf-8")
    return stale


def stale_pages(docs: Path) -> list[str]:
    """Return the paths of the pages that are missing or differ from the text that the code produces now."""
    return [
        path
        for path, page in sorted(PAGES.items())
        if not (docs / path).exists() or (docs / path).read_text(encoding="utf-8") != _text(page)
    ]


def _text(page: Page) -> str:
    return page().rstrip("\n") + "\n"


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
