"""Files that say how jobs ended: logs that executors wrote (jobs/executor/outcome_log.py), and operators' lists."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from queueops.core.errors import QueueOpsError
from queueops.core.sealing import open_json

FOREIGN_NAMED = 5  # an error names at most so many foreign lines of each file
MAX_FIELD_BYTES = 100_000_000  # the most bytes of a field in a .csv
COLUMNS = ("job_id", "effect_key", "outcome", "result")


class UnreadableOutcomes(QueueOpsError):
    """A file is neither an outcome log nor a list of outcomes."""

    code = "unreadable_outcomes"


class Word(StrEnum):
    """How a job ended, as an operator states it."""

    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_DONE = "not_done"


class Place(NamedTuple):
    """Where a line begins: its file, and the offset in bytes."""

    path: Path
    offset: int

    def read(self) -> dict[str, Any]:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            known: dict[str, Any] = json.loads(open_json(file.readline().decode()))
        return known


class End(NamedTuple):
    """The end of a job, as an outcome log tells it: which attempt ended it, and how."""

    token: int
    is_completed: bool
    place: Place


@dataclass(slots=True)
class Said:
    """
    All that the files say of a job.

    Attributes:
        begun, ended: Fencing tokens of its attempts; `ended` has the attempts whose end is known completely.
        end: The last attempt that ended the job.
        word: An operator's statement, which counts more than a log; `result`: the result given with it.
    """

    kind: str = ""
    project: str = ""
    effect_key: str = ""
    begun: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    end: End | None = None
    word: Word | None = None
    result: Any = None

    @property
    def open_token(self) -> int:
        """The token of the newest attempt whose end nobody knows; 0: there is none."""
        return max(set(self.begun) - set(self.ended), default=0)


@dataclass(slots=True)
class Outcomes:
    """
    The statements of several files together.

    Attributes:
        by_key: Statements of operators that name an effect key and no job.
        foreign: By file, how many lines belong neither to a log nor to a list; `named`: the first of them.
        torn: Files whose last line was cut off as its writer ended.
    """

    jobs: dict[UUID, Said] = field(default_factory=dict)
    by_key: dict[str, Said] = field(default_factory=dict)
    lines: int = 0
    foreign: dict[Path, int] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)
    torn: list[Path] = field(default_factory=list)


def read_outcomes(paths: Iterable[Path]) -> Outcomes:
    """
    Read logs and lists, in any order; of a directory, its *.ndjson files.

    Keeps some 300 bytes a job in memory. Results are read again, and decrypted, only when they are needed.

    Raises:
        UnreadableOutcomes: A file cannot be read or has only foreign lines, or an operator's line is wrong. The message
            names it.
    """
    outcomes = Outcomes()
    for path in _files(paths):
        before = outcomes.lines
        try:
            if path.suffix == ".csv":
                _read_csv(path, outcomes)
            else:
                _read_lines(path, outcomes)
        except OSError as error:
            raise UnreadableOutcomes(f"{path} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise UnreadableOutcomes(f"{path} is no text in UTF-8.") from error
        if outcomes.lines == before and outcomes.foreign.get(path):
            raise UnreadableOutcomes(
                f"{path} has no line of an outcome log and none of a list. A log has the lines that workers write into "
                f"QUEUEOPS_OUTCOME_LOG; a list is a .csv with the columns {', '.join(COLUMNS)}, or such objects as "
                "JSON, one a line."
            )
    return outcomes


def _files(paths: Iterable[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in paths:
        try:
            path.stat()
        except FileNotFoundError:
            raise UnreadableOutcomes(f"There is no {path}.") from None
        except OSError as error:
            raise UnreadableOutcomes(f"{path} cannot be read: {error.strerror}.") from error
        inside = sorted(path.glob("*.ndjson")) if path.is_dir() else [path]
        if not inside:
            raise UnreadableOutcomes(f"{path} has no *.ndjson, which an outcome log consists of.")
        found.update((one.resolve(), None) for one in inside)  # a file that is named twice is read once
    return list(found)


def _read_lines(path: Path, outcomes: Outcomes) -> None:
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place, offset = Place(path, offset), offset + len(line)
            if not line.strip():
                continue
            try:
                known = json.loads(line)
            except ValueError:
                if line.endswith(b"\n"):
                    _note_foreign(path, number, outcomes)
                else:
                    outcomes.torn.append(path)
                continue
            if isinstance(known, dict) and "event" not in known and "outcome" in known:
                _take_word(known, f"{path}:{number}", outcomes)
            elif not _take_line(known, place, outcomes):
                _note_foreign(path, number, outcomes)


def _note_foreign(path: Path, number: int, outcomes: Outcomes) -> None:
    count = outcomes.foreign[path] = outcomes.foreign.get(path, 0) + 1
    if count <= FOREIGN_NAMED:
        outcomes.named.append(f"{path}:{number}")


def _take_line(known: Any, place: Place, outcomes: Outcomes) -> bool:
    """Record a line of an outcome log; return whether it is such a line."""
    try:
        job_id, token, event = UUID(known["job"]), int(known["token"]), known["event"]
        outcome = known["outcome"] if event == "ended" else ""
        kind, project, effect_key = str(known["kind"]), str(known["project"]), str(known["effect_key"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    if event not in {"begun", "ended"} or outcome not in {"", "completed", "failed", "retry", "part", "not_done"}:
        return False
    outcomes.lines += 1
    said = outcomes.jobs.get(job_id)
    if said is None:
        said = outcomes.jobs[job_id] = Said(sys.intern(kind), sys.intern(project), effect_key)
    said.kind, said.project = said.kind or kind, said.project or project
    if token not in said.begun:
        said.begun += (token,)
    if outcome and outcome != "part" and token not in said.ended:  # after a part, a further call may have begun
        said.ended += (token,)
    if outcome in {"completed", "failed"}:
        end = End(token, outcome == "completed", place)
        if said.end is None or end[:2] > said.end[:2]:
            said.end = end
    return True


def _read_csv(path: Path, outcomes: Outcomes) -> None:
    csv.field_size_limit(MAX_FIELD_BYTES)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        names = rows.fieldnames or ()
        if "outcome" not in names or not {"job_id", "effect_key"} & set(names) or set(names) - set(COLUMNS):
            raise UnreadableOutcomes(
                f"{path} must have a first line with the columns outcome, and job_id or effect_key, and if you like "
                f"result; it has {', '.join(names) or 'none'}."
            )
        for row in _rows(rows, path):
            given: dict[Any, Any] = {name: value for name, value in row.items() if value}
            if "result" in given:
                given["result"] = _value(given["result"])
            _take_word(given, f"{path}:{rows.line_num}", outcomes)


def _rows(rows: csv.DictReader[str], path: Path) -> Iterator[dict[str | Any, str | Any]]:
    try:
        yield from rows
    except csv.Error as error:
        raise UnreadableOutcomes(f"{path}:{rows.line_num}: {error}.") from error


def _take_word(given: dict[Any, Any], where: str, outcomes: Outcomes) -> None:
    extra = ", ".join(str(name) for name in given if name not in COLUMNS)
    if extra:
        raise UnreadableOutcomes(f"{where}: {extra} means nothing; there are {', '.join(COLUMNS)}.")
    job, key = given.get("job_id"), given.get("effect_key")
    if (job is None) == (key is None):
        raise UnreadableOutcomes(f"{where}: a line has a job_id or an effect_key.")
    try:
        word = Word(given.get("outcome", ""))
    except ValueError:
        words = ", ".join(Word)
        raise UnreadableOutcomes(f"{where}: outcome is one of {words}, not {given.get('outcome')!r}.") from None
    result = given.get("result")
    if result is not None and word is not Word.COMPLETED:
        raise UnreadableOutcomes(f"{where}: only what is completed has a result.")
    if len(json.dumps(result)) > settings.QUEUEOPS.max_payload_bytes:
        raise UnreadableOutcomes(f"{where}: the result is larger than QUEUEOPS_MAX_JOB_MB.")
    if job is not None:
        try:
            said = outcomes.jobs.setdefault(UUID(str(job)), Said())
        except ValueError:
            raise UnreadableOutcomes(f"{where}: {job!r} is no job's id.") from None
    else:
        said = outcomes.by_key.setdefault(str(key), Said(effect_key=str(key)))
    if said.word not in {None, word} or (said.word is not None and said.result != result):
        raise UnreadableOutcomes(f"{where}: an earlier line says otherwise of {job or key}.")
    outcomes.lines += 1
    said.word, said.result = word, result


def _value(text: str) -> Any:
    """A result in a .csv: JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
