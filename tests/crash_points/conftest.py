"""The world that operations crash in."""

from tests.crash_points.worlds import queue

__all__ = ["queue"]
