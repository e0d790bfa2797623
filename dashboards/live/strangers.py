"""Sockets of unknown clients. They get a small part of a process, in which clients that sign in at once find room."""

from __future__ import annotations

from collections.abc import Callable

MAX_STRANGERS = 200  # of a process; they are beside the sockets that are signed in
MAX_OF_ADDRESS = 50  # an office behind one address signs in within a second, too

PutOut = Callable[[], None]


class Strangers:
    """
    Lives on the event loop.

    If there is no room, the socket that has waited longest goes, of the address with the most, and not the one that
    comes. A client with a credential shows it at once, and is a stranger no more.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, dict[PutOut, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, address: str, put_out: PutOut) -> None:
        """
        Args:
            put_out: Called once, without a call of `leave`, if this socket is to make room.
        """
        own = self._by_address.setdefault(address, {})
        own[put_out] = None
        self._count += 1
        if len(own) > MAX_OF_ADDRESS:
            self._put_out(address)
        elif self._count > MAX_STRANGERS:
            self._put_out(max(self._by_address, key=lambda one: len(self._by_address[one])))

    def leave(self, address: str, put_out: PutOut) -> None:
        """Repeating it is harmless."""
        own = self._by_address.get(address, {})
        if put_out in own:
            del own[put_out]
            self._count -= 1
            if not own:
                del self._by_address[address]

    def _put_out(self, address: str) -> None:
        first = next(iter(self._by_address[address]))
        self.leave(address, first)
        first()
