"""The files that hold request bodies until they are answered, and how many bytes those may have at once."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any

from queueops.core.errors import QueueOpsError
from queueops.core.web.askers import Asker

from .request_queue import come_back

IN_MEMORY_BYTES = 100_000
FREE_BYTES = 16_384  # a body up to this size is not counted: its connection alone takes as much memory
STRANGER_BYTES = 100_000  # the largest body of an unknown sender; signing in takes less
STRANGERS_SHARE = 8  # all unknown senders together get one eighth of the bytes
ADDRESS_SHARE = 4  # one address gets at most one quarter of the strangers' share


class SignInFirst(QueueOpsError):
    """A body this large needs a key, a token or a session that is good."""

    code = "not_authenticated"
    status = 401


def sign_in_first() -> SignInFirst:
    return SignInFirst(
        f"A body of more than {STRANGER_BYTES:,} bytes needs a key, a token or a session that is good. This has none, "
        "or it is unknown, expired or revoked."
    )


class BodyTooSlow(QueueOpsError):
    """The body comes more slowly than a place can be kept for it."""

    code = "body_too_slow"
    status = 408
    detail_fields = ("bytes_per_second",)


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """
    Attributes:
        total_bytes: The most bytes of all bodies in a process.
        asker_bytes: The most bytes of all bodies of a project or person.
        least_rate: The least bytes a second of a body, except in its first seconds.
    """

    total_bytes: int
    asker_bytes: int
    least_rate: float


class SpooledBytes:
    """
    Counts the bytes that each asker's bodies take. A lock guards the counts: threads give bytes back, too.

    Attributes:
        refused: Bodies for which there was no room.
    """

    def __init__(self, limits: SpoolLimits) -> None:
        self.limits = limits
        self.refused = 0
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        return self._taken.total()

    def take(self, asker: Asker, size: int) -> None:
        """
        Raises:
            Overloaded: There is no room, for this asker or at all.
        """
        with self._lock:
            if not self._has_room(asker, size):
                self.refused += 1
                raise come_back()
            self._taken[asker.name] += size

    def give_back(self, asker: Asker, size: int) -> None:
        with self._lock:
            self._taken -= Counter({asker.name: size})

    def _has_room(self, asker: Asker, size: int) -> bool:
        if self._taken.total() + size > self.limits.total_bytes:
            return False
        own = self._taken[asker.name] + size
        if asker.is_known:
            return own <= self.limits.asker_bytes
        of_strangers = self.limits.total_bytes // STRANGERS_SHARE
        taken = sum(count for name, count in self._taken.items() if name.startswith("address:"))
        return taken + size <= of_strangers and own <= of_strangers // ADDRESS_SHARE


class Spool(SpooledTemporaryFile[bytes]):
    """One body's file; closing it gives its room back."""

    def __init__(self, room: SpooledBytes) -> None:
        super().__init__(max_size=IN_MEMORY_BYTES)
        self._room = room
        self._held: tuple[Asker, int] | None = None

    def hold(self, asker: Asker, size: int) -> None:
        """
        Keep room for so many bytes more.

        Raises:
            Overloaded
        """
        self._room.take(asker, size)
        self._held = (asker, size + (self._held[1] if self._held else 0))

    def __exit__(self, *_: object) -> None:
        self.close()  # the base class closes its file without calling close()

    def close(self) -> None:
        super().close()
        held: Any = self.__dict__.pop("_held", None)  # IOBase's destructor also closes an object whose __init__ failed
        if held:
            self._room.give_back(*held)
