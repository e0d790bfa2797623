"""
Crashes in place of kills: an operation ends before or after each statement that it sends, as its process would.

What a killed process leaves is what it has committed, and calls that it has made. So the operation runs on a connection
of its own, which ends at the chosen point: the server rolls back what was open. What the process knew is forgotten, and
whatever the test does next is another process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn, Protocol

from django.db import connections

from queueops.core.postgres.watched_line import WatchedConnection
from tests.support.forgetting import forget_all
from tests.support.processes import wait_for

TRIES = 2  # once more where the clock, not the crash, has changed the statements
SETTINGS = "_set_"  # of the driver itself: nothing is sent
GONE = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"


class Crash(BaseException):
    """The process was killed here; no handler of errors may go on."""


@dataclass
class Wire:
    """
    What a process sends to its database, and where it dies.

    Attributes:
        outside: What else it has done by then, beside the database.
        at: The number of the statement, from 0; None: it lives.
        after: Whether the server has answered the statement by then.
        sent: The statements, the one that it died of included.
        done: What it had done outside before and after each.
    """

    outside: Callable[[], object]
    at: int | None = None
    after: bool = False
    sent: list[str] = field(default_factory=list)
    done: list[object] = field(default_factory=list)
    is_dead: bool = False

    @contextmanager
    def of_another_process(self) -> Iterator[None]:
        """Carry out the block as a process with a connection of its own; it is gone at the block's end."""
        survivor = connections["default"]
        connections["default"] = victim = connections.create_connection("default")
        real = WatchedConnection.wait

        def wait(line: WatchedConnection, gen: Any, *arguments: Any, **options: Any) -> Any:
            if self.is_dead:  # whatever would clean up is gone as well
                raise Crash
            if line is not victim.connection or gen.__name__.startswith(SETTINGS):
                return real(line, gen, *arguments, **options)
            number = len(self.sent)
            self.sent.append(_told(gen))
            self.done.append(self.outside())
            if number == self.at and not self.after:
                self._die(line)
            answer = real(line, gen, *arguments, **options)
            self.done.append(self.outside())
            if number == self.at:
                self._die(line)
            return answer

        forget_all()
        victim.ensure_connection()
        pid = victim.connection.info.backend_pid
        WatchedConnection.wait = wait  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            WatchedConnection.wait = real  # type: ignore[method-assign]
            connections["default"] = survivor
            victim.close()
            with survivor.cursor() as cursor:
                # Until then its locks are held, and what it has written is neither there nor gone.
                wait_for(lambda: cursor.execute(GONE, [pid]).fetchone()[0], what="the end of the dead one's session")
            forget_all()

    def _die(self, line: WatchedConnection) -> NoReturn:
        self.is_dead = True
        line.pgconn.finish()
        raise Crash


class World(Protocol):
    """
    What operations work in.

    `outside`: what has been done that no database takes back. `stored`: what the database has. `check`: raises what is
    wrong once everything has ended.
    """

    def empty(self) -> object: ...
    def outside(self) -> object: ...
    def stored(self) -> object: ...
    def check(self) -> object: ...


@dataclass
class Case:
    """
    One operation that may be cut off anywhere.

    Attributes:
        prepare: Fills the world, and gives the operation.
        recover: What others do once its process is gone, until everything has ended.
    """

    name: str
    world: World
    prepare: Callable[[], Callable[[], object]]
    recover: Callable[[], object]

    def crash_everywhere(self, *, at_least: int) -> str:
        """
        Die before and after each statement of the operation, recover, and check; all that was wrong is told at once.

        After one statement and before the next is the same moment where nothing is done outside in between. Where a
        crash has left nothing at all, the next one comes in the same world, which need be recovered but once.

        Args:
            at_least: Points that there are, so that none vanishes unseen.

        Returns:
            The figures.
        """
        wrong: list[str] = []
        whole = Wire(self.world.outside)
        self._carry_out(self._prepare()[0], whole)
        operation, prepared = None, None
        points = range(2 * len(whole.sent))
        for point in points:
            number, after = divmod(point, 2)
            if point and not after and whole.done[point] == whole.done[point - 1]:
                continue
            if operation is None:
                operation, prepared = self._prepare()
            wire = Wire(self.world.outside, number, bool(after))
            self._carry_out(operation, wire)
            for _ in range(TRIES):
                if wire.sent == whole.sent[: number + 1]:
                    break
                # A machine that stood still has read anew what it remembers for a second.
                operation, prepared = self._prepare()
                wire = Wire(self.world.outside, number, bool(after))
                self._carry_out(operation, wire)
            if wire.sent != whole.sent[: number + 1]:
                pairs = zip_longest(wire.sent, whole.sent[: number + 1])
                wrong.append(f"other statements: {next(pair for pair in pairs if len(set(pair)) > 1)}")
            if not point or self._state() != prepared or point == points[-1]:
                operation = None
                self._recover(wire, wrong)
        told = f"{len(wrong)} of {len(points)} crashes of {self.name} were not recovered from:"
        assert not wrong, "\n".join([told, *wrong])
        assert len(points) >= at_least, f"{len(points)} points are fewer than the {at_least} that there were"
        return f"{len(points)} crashes, before and after each statement: nothing lost, nothing doubled"

    def _prepare(self) -> tuple[Callable[[], object], object]:
        self.world.empty()
        forget_all()
        operation = self.prepare()
        return operation, self._state()

    def _state(self) -> object:
        return self.world.stored(), self.world.outside()

    def _carry_out(self, operation: Callable[[], object], wire: Wire) -> None:
        with suppress(Crash), wire.of_another_process():
            operation()

    def _recover(self, wire: Wire, wrong: list[str]) -> None:
        try:
            assert wire.is_dead, "nobody died"
            self.recover()
            self.world.check()
        except Exception as error:  # noqa: BLE001 (told with all others)
            place = f"{'after' if wire.after else 'before'} {wire.at} ({wire.sent[-1] if wire.sent else ''})"
            wrong.append(f"{place}: {''.join(traceback.format_exception_only(error)).strip()}")


def _told(gen: Any) -> str:
    """The statement, or what else the driver sends."""
    query = gen.gi_frame.f_locals.get("query", gen.__name__.strip("_"))
    text = query.decode() if isinstance(query, bytes) else str(query)
    return " ".join(text.split())[:60]
