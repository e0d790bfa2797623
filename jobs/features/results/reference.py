"""
The reference in a job's row that stands for a result in the result store.

It is `queueops!stored!<name>!<bytes>!<sha256>`, a string in the place of the result. Handlers and requests cannot write
a reference: `defused` in queueops/core/sealing.py breaks it in their values, as it breaks sealed values.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from queueops.core.sealing import STORED

PARTS_OF_NAME = 3
# A plain result of an earlier release may begin like this, too: its name must not lead out of the store.
REFERENCE = re.compile(
    STORED + r"(?P<name>[a-z0-9][a-z0-9._-]*/[0-9-]{10}/[A-Za-z0-9.-]+)!(?P<bytes>[0-9]+)!(?P<sha256>[0-9a-f]{64})"
)


class StoredResult(NamedTuple):
    """
    Attributes:
        name: The object's name, `<project>/<day>/<job>.<fencing token>.<random>`. No two writes use the same name.
        bytes: The result's size as JSON.
        sha256: The checksum of the object, which is encrypted where the project's payloads are.
    """

    name: str
    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{STORED}{self.name}!{self.bytes}!{self.sha256}"

    @property
    def as_json(self) -> str:
        return json.dumps(str(self))


def stored_in(value: Any) -> StoredResult | None:
    """The stored result that a job's `result` names; None: the value is the result itself."""
    if not isinstance(value, str) or (found := REFERENCE.fullmatch(value)) is None:
        return None
    return StoredResult(found["name"], int(found["bytes"]), found["sha256"])


def is_reference(text: str) -> bool:
    """Whether JSON text is a reference."""
    return text.startswith(f'"{STORED}')


def new_name(project: str, job: UUID, token: int) -> str:
    return f"{project}/{datetime.now(UTC):%Y-%m-%d}/{job}.{token}.{uuid4().hex[:12]}"


def read_name(name: str) -> tuple[UUID, int] | None:
    """The job and the fencing token that an object was written for; None: the name is not one of ours."""
    parts = name.rpartition("/")[2].split(".")
    try:
        return (UUID(parts[0]), int(parts[1])) if len(parts) == PARTS_OF_NAME else None
    except ValueError:
        return None
