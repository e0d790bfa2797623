"""
What MkDocs does not do by itself for our site.

Folders in the navigation are filled; links to files of the repository that are no pages keep their text alone; inline
scripts become files, so that the strict Content-Security-Policy of an installation holds for its /docs/, too; llms.txt
lists the pages for language models, which read them as Markdown beside the HTML.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ICON = "dashboards/static/dashboards/icon.svg"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
INLINE_SCRIPT = re.compile(r"<script>(.+?)</script>", re.DOTALL)

_told: dict[str, tuple[str, str]] = {}  # by page: its title and first sentence


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = _with_folders(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    icon = Path(config.config_file_path).parent / ICON
    files.append(File.generated(config, "_assets/icon.svg", abs_src_path=str(icon)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def without_foreign(found: re.Match[str]) -> str:
        text, target, _ = found.groups()
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        if files.get_file_from_path(path):
            return found[0]
        return f'<span title="{escape(path.replace("../", ""))}">{text}</span>'

    return LINK.sub(without_foreign, markdown)


def on_page_content(html: str, page: Page, **_: Any) -> None:
    first = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    text = " ".join(re.sub(r"<[^>]+>", "", first[1]).split()) if first else ""
    _told[page.file.src_uri] = (str(page.title), re.split(r"(?<=[.:])\s", text)[0].rstrip(":"))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    to_root = posixpath.relpath(".", posixpath.dirname(page.url) or ".")
    return _scripts_in_files(output, Path(config.site_dir), to_root)


def on_post_build(config: MkDocsConfig) -> None:
    site, docs = Path(config.site_dir), Path(config.docs_dir)
    missing = site / "404.html"
    missing.write_text(_scripts_in_files(missing.read_text(encoding="utf-8"), site, "/docs"), encoding="utf-8")
    lines = [f"# {config.site_name}", "", f"> {config.site_description}.", "", "## Pages", ""]
    for path, (title, told) in sorted(_told.items()):
        (site / path).write_text((docs / path).read_text(encoding="utf-8"), encoding="utf-8")
        lines.append(f"- [{title}]({path}): {told}" if told else f"- [{title}]({path})")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _with_folders(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        return [_with_folders(entry, docs) for entry in nav]
    if isinstance(nav, dict):
        return {title: _with_folders(entry, docs) for title, entry in nav.items()}
    if nav.endswith("/"):
        pages = sorted(path.relative_to(docs).as_posix() for path in (docs / nav).glob("*.md"))
        return sorted(pages, key=lambda path: not path.endswith("README.md"))
    return nav


def _scripts_in_files(html: str, site: Path, to_root: str) -> str:
    def moved(found: re.Match[str]) -> str:
        name = f"assets/javascripts/inline.{hashlib.sha256(found[1].encode()).hexdigest()[:12]}.js"
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(found[1], encoding="utf-8")
        return f'<script src="{to_root}/{name}"></script>'

    return INLINE_SCRIPT.sub(moved, html)
