"""
Contents of files that a payload names.

A payload has `{"$file": "file-..."}` in place of a text. The file is read when the job is submitted. From then on, the
job contains the text itself and needs no file.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from jobs.features.dependencies.takes import Step, field_of, placeholders, with_values
from jobs.services.submit.spec import InvalidJob
from queueops.core.errors import QueueOpsError

FILE, FORM = "$file", "as"
IN_JSON = b'"$file":'  # in JSON without spaces
MAX_FILES = 20
FORMS: dict[str, Callable[[bytes], str]] = {
    "text": lambda content: content.decode("utf-8-sig"),
    "base64": lambda content: b64encode(content).decode(),
}
STAND_IN = b"text"  # for a file that is not read yet
HOW = f'is {{"{FILE}": "file-...", "{FORM}": "text" or "base64"}}; text where {FORM} is left out'


class FileReader(Protocol):
    def __call__(self, name: str, *, project_id: str, most_bytes: int) -> bytes:
        """
        Read a file of a project.

        Raises:
            QueueOpsError: There is no file of this name, or it has more than `most_bytes`.
        """


_readers: list[FileReader] = []


def read_files_by(reader: FileReader) -> None:
    """Set the reader of the files that payloads name. The app that stores files calls this when it is ready."""
    _readers[:] = [reader]


def with_files(payload: dict[str, Any], *, project_id: str | None, most_bytes: int, read: bool) -> dict[str, Any]:
    """
    Return a payload with the contents of the files that it names.

    Args:
        project_id: The owner of the files; None: there is none, and a file that is to be read is refused.
        most_bytes: The limit for all files together.
        read: Whether to read the files; False: a stand-in takes the place of each file.

    Raises:
        InvalidJob: With the place of each fault.
    """
    values, faults, left = [], {}, most_bytes
    for n, (place, given) in enumerate(_found(payload)):
        try:
            name, form = _read_name(given)
            if n == MAX_FILES:
                raise InvalidJob(f"A payload names at most {MAX_FILES} files.")
            content = _content(name, project_id, left) if read else STAND_IN
            left -= len(content)
            values.append((place, FORMS[form](content)))
        except UnicodeDecodeError as error:
            faults[field_of(place)] = [f"{name} is not UTF-8 (byte {error.start:,}): give it with {FORM} base64"]
        except QueueOpsError as error:
            faults[field_of(place)] = [error.message]
    if faults:
        raise InvalidJob("A file that the payload names cannot be used.", fields=faults)
    filled: dict[str, Any] = with_values(payload, values)
    return filled


def _content(name: str, project_id: str | None, most_bytes: int) -> bytes:
    if project_id is None or not _readers:
        raise InvalidJob("Files are not read here.")
    return _readers[0](name, project_id=project_id, most_bytes=most_bytes)


def _found(payload: Any) -> Iterator[tuple[Sequence[Step], dict[str, Any]]]:
    return placeholders(payload, lambda value: FILE in value)


def _read_name(given: dict[str, Any]) -> tuple[str, str]:
    name, form = given[FILE], given.get(FORM, "text")
    if not isinstance(name, str) or not isinstance(form, str) or form not in FORMS or not given.keys() <= {FILE, FORM}:
        raise InvalidJob(HOW)
    return name, form
