"""Sockets that have not signed in. They are few in a process, and a client that signs in at once finds room."""

from __future__ import annotations

from collections.abc import Callable

MAX_STRANGERS = 200  # of a process, besides the signed-in sockets
MAX_OF_ADDRESS = 50  # enough for an office behind one address: all sign in within a second

PutOut = Callable[[], None]


class Strangers:
    """
    The sockets that have not signed in, by address. Its methods run on the event loop.

    A new socket is always let in. If there is no room, the oldest socket of the address with the most sockets is
    closed. A client with a credential signs in at once, and then counts here no more.
    """

    def __init__(self) -> None:
        self._by_address: dict[str, dict[PutOut, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, address: str, put_out: PutOut) -> None:
        """
        Args:
            put_out: Closes the socket. Called once if the socket must make room; `leave` is then not needed.
        """
        own = self._by_address.setdefault(address, {})
        own[put_out] = None
        self._count += 1
        if len(own) > MAX_OF_ADDRESS:
            self._put_out(address)
        elif self._count > MAX_STRANGERS:
            self._put_out(max(self._by_address, key=lambda one: len(self._by_address[one])))

    def leave(self, address: str, put_out: PutOut) -> None:
        """Remove a socket. Calling it again is harmless."""
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
