"""Rows by sheet, bounded in memory."""

MAX_STORED_BYTES = 256_000_000


class SheetsFull(Exception):
    """The sandbox stores no more rows until it is reset."""


class Sheets:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._rows: dict[str, dict[str, bytes]] = {}
        self._stored_bytes = 0

    def write(self, sheet: str, row: str, value: bytes) -> None:
        """
        Set a row's value, JSON as bytes.

        Raises:
            SheetsFull: MAX_STORED_BYTES are stored; nothing was written.
        """
        rows = self._rows.get(sheet, {})
        grown = self._stored_bytes + len(value) - len(rows.get(row, b""))
        if grown > MAX_STORED_BYTES:
            raise SheetsFull
        self._stored_bytes = grown
        self._rows.setdefault(sheet, rows)[row] = value

    def read(self, sheet: str, row: str) -> bytes | None:
        return self._rows.get(sheet, {}).get(row)

    def rows(self, sheet: str) -> list[tuple[str, bytes]]:
        """Return all rows of a sheet in the order in which they were first written."""
        return list(self._rows.get(sheet, {}).items())
