"""The runbooks of docs/runbooks/, made into HTML for people who answer an alert."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby
from typing import NamedTuple

from django.conf import settings
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

_MARKED = re.compile(r"`([^`]+)`|\*([^*]+)\*")  # in one pass, so that a star within code does not mark emphasis
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")  # to Markdown files, which no web process serves: only the words stay


class Section(NamedTuple):
    """A section of a runbook. The first has no heading and says what the alert means."""

    heading: str
    body: SafeString


@cache
def read_runbook(kind: str) -> tuple[str, tuple[Section, ...]]:
    """
    Return a runbook's title and sections.

    It reads only the Markdown that runbooks use: one title, second-level headings, paragraphs, lists of one level, code
    and emphasis.

    Raises:
        FileNotFoundError: No runbook has that name.
    """
    title, *parts = re.split(r"^## ", runbook_text(kind), flags=re.MULTILINE)
    first, _, meaning = title.partition("\n")
    sections = [Section("", _blocks(meaning))]
    for part in parts:
        heading, _, body = part.partition("\n")
        sections.append(Section(heading.strip(), _blocks(body)))
    return first.removeprefix("# ").strip(), tuple(sections)


def runbook_text(kind: str) -> str:
    """
    Return a runbook as it was written, in Markdown.

    Raises:
        FileNotFoundError: No runbook has that name.
    """
    return (settings.BASE_DIR / "docs" / "runbooks" / f"{kind}.md").read_text(encoding="utf-8")


def _blocks(body: str) -> SafeString:
    made = []
    for block in re.split(r"\n\s*\n", body.strip()):
        for is_item, lines in groupby(_joined(block), key=lambda line: line.startswith(("- ", "1. "))):
            if is_item:
                items = list(lines)
                tag = "ul" if items[0].startswith("- ") else "ol"
                rows = format_html_join("", "<li>{}</li>", ((_inline(item.split(" ", 1)[1]),) for item in items))
                made.append(format_html("<{tag}>{}</{tag}>", rows, tag=mark_safe(tag)))  # noqa: S308 - one of two words
            else:
                made.append(format_html("<p>{}</p>", _inline(" ".join(lines))))
    return SafeString("".join(made))


def _joined(block: str) -> list[str]:
    """Return a block's items and paragraphs, each in one line."""
    joined: list[str] = []
    for line in block.splitlines():
        words = line.strip()
        starts = re.match(r"(- |\d+\. )", words)
        if starts and starts.group() != "- ":
            words = "1. " + words[starts.end() :]
        if joined and not starts:
            joined[-1] += f" {words}"
        else:
            joined.append(words)
    return joined


def _inline(text: str) -> SafeString:
    words = conditional_escape(_LINK.sub(r"\1", text))
    return SafeString(_MARKED.sub(_marked, words))


def _marked(found: re.Match[str]) -> str:
    code, words = found.groups()
    return f'<code class="qo-code">{code}</code>' if code else f"<em>{words}</em>"
