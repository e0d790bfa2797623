"""
Reports comments and docstrings that a reader must read twice: `make check` runs it.

A sentence fails if its first word makes the reader wait for the subject, or if it has too many words. For an item of a
list, such as an attribute or an argument, only the length counts. Code in backticks is one word.

    python deploy/plain_words.py [path ...]
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
READ = (
    "queueops",
    "jobs",
    "ratelimits",
    "dashboards",
    "clients/python/src",
    "sandbox",
    "demo",
    "examples",
    "bench",
    "deploy",
)
LEFT_OUT = re.compile(r"/migrations/|/static/|_pb2")
MAX_WORDS = 30
OPENINGS = ("Of", "What", "Who", "Those", "So", "Nor")

_CODE = re.compile(r"`[^`]*`|\"[^\"\n]*\"|https?://\S+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=;)\s+(?=\n)")
# One or several names and a colon. Words with only spaces between them are a sentence that goes on after its colon.
_ITEM = re.compile(
    r"^\s*(?:[-*\d.]+\s|`?[\w.*]+`?(?:,? (?:and )?`[\w.*]+`|, [\w.*]+){0,12}:\s|(?:params|locks|clock|returns|order)\s)"
)
_LINT = re.compile(r"noqa|type: ignore|fmt: (?:on|off|skip)|pragma|!/|nosec|mypy:|ruff:")


class Passage(NamedTuple):
    """A comment or docstring: the line it begins at, and its text."""

    line: int
    text: str


class Fault(NamedTuple):
    path: Path
    line: int
    why: str
    sentence: str


def python_passages(source: str) -> Iterator[Passage]:
    """Yield docstrings and comments; comments on consecutive lines are one passage."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=True)
            if text:
                yield Passage(node.body[0].lineno, text)
            yield from _of_attributes(node.body)
    block: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _LINT.search(token.string):
            continue
        (row, column), text = token.start, token.string.lstrip("#").strip()
        is_alone = not token.line[:column].strip()
        if block and is_alone and block[-1][:2] == (row - 1, column):
            block.append((row, column, text))
            continue
        if block:
            yield Passage(block[0][0], " ".join(one for *_, one in block))
        block = [(row, column if is_alone else -1, text)]
    if block:
        yield Passage(block[0][0], " ".join(one for *_, one in block))


def _of_attributes(body: Sequence[ast.stmt]) -> Iterator[Passage]:
    """Yield strings that stand below an assignment and describe its name."""
    for before, node in pairwise(body):
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Expr):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield Passage(node.lineno, value.value)


def sql_passages(source: str) -> Iterator[Passage]:
    block: list[tuple[int, str]] = []
    for row, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith("--"):
            block.append((row, line.lstrip().lstrip("-").strip()))
        elif block:
            yield Passage(block[0][0], "\n".join(text for _, text in block))
            block = []


def faults_of(passage: Passage) -> Iterator[tuple[str, str]]:
    """Yield the reason and the sentence for each sentence of a passage that fails."""
    for paragraph in re.split(r"\n\s*\n", passage.text):
        for part in _parts(paragraph):
            is_item = bool(_ITEM.match(part))
            for sentence in _SENTENCE_END.split(" ".join(part.split())):
                words = [word for word in _CODE.sub("code", sentence).split() if re.search(r"\w", word)]
                if not words:
                    continue
                if len(words) > MAX_WORDS:
                    yield f"{len(words)} words, at most {MAX_WORDS}", sentence
                if words[0].strip(",:") in OPENINGS and not is_item and len(words) > 1:
                    yield f"opens with {words[0]}", sentence


def _parts(paragraph: str) -> Iterator[str]:
    """Yield the items of a list one by one; if there is no list, the paragraph."""
    part: list[str] = []
    for line in paragraph.splitlines():
        if part and _ITEM.match(line):
            yield "\n".join(part)
            part = []
        part.append(line)
    yield "\n".join(part)


def check(paths: Sequence[Path]) -> list[Fault]:
    """Read these files, and all files below these folders; return the faults in them."""
    found = []
    for path in files_of(paths):
        source = path.read_text()
        for passage in (sql_passages if path.suffix == ".sql" else python_passages)(source):
            found += [Fault(path, passage.line, *fault) for fault in faults_of(passage)]
    return found


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        below = [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.sql")])
        yield from (one for one in below if not LEFT_OUT.search(one.as_posix()))


def main(names: Sequence[str]) -> int:
    faults = check([Path(name) for name in names] or [ROOT / name for name in READ])
    for fault in faults:
        where = fault.path.relative_to(ROOT) if fault.path.is_relative_to(ROOT) else fault.path
        print(f"{where}:{fault.line}: {fault.why}: {fault.sentence}")
    print(f"{len(faults)} sentences to write again" if faults else "Every sentence is plain.")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
