"""The outbox: rows move as they may, sums stay right, and a file that cannot be used says why."""

from __future__ import annotations

import os
import select
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from queueops_client.usage.cache import Heard, View
from queueops_client.usage.clock import ServerClock
from queueops_client.usage.errors import OutboxFailed, OutboxFull
from queueops_client.usage.file import default_path
from queueops_client.usage.outbox import KEPT_SENT, Intent, Outbox, Reservation, Settled
from usage_trackers import OTHER_USER, USER

SRC = Path(__file__).resolve().parents[1] / "src"
HEARD = Heard(remaining=10_000, resets_at=4e9, month="2026-11", quota=10_000, unit="tokens", policy="strict")


def intent(estimate: int = 10, user_id: str = USER) -> Intent:
    return Intent(str(uuid4()), user_id, "gemini", estimate)


def always(_view, _cost):
    return True


@pytest.fixture
def outbox(tmp_path):
    made = Outbox(tmp_path / "outbox.sqlite3", clock=ServerClock())
    yield made
    made.close()


def begun(outbox: Outbox, **options) -> Intent:
    use = intent(**options)
    assert outbox.begin(use, always)[0]
    return use


def known(outbox: Outbox) -> View:
    view = outbox.view(USER)
    assert view is not None
    return view


def ready(outbox: Outbox, tokens: int = 5, **options) -> Intent:
    use = begun(outbox, **options)
    outbox.complete(use, tokens=tokens, unit="tokens")
    return use


class Machine(RuleBasedStateMachine):
    """Two processes' outboxes on one file, beside a model."""

    uses = Bundle("uses")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # noqa: S108 (a directory of the test's own in it)
        self.directory = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        path = Path(self.directory.name) / "outbox.sqlite3"
        self.now = 1_800_000_000.0
        self.boxes = [Outbox(path, clock=ServerClock(lambda: self.now)) for _ in range(2)]
        self.boxes[0].settle([], {USER: HEARD}, versions={})
        self.rows: dict[str, tuple[str, int, int, float]] = {}  # status, cost, held, held until
        self.releases: set[str] = set()

    def teardown(self) -> None:
        for box in self.boxes:
            box.close()
        self.directory.cleanup()

    @rule(target=uses, which=st.integers(0, 1), estimate=st.integers(0, 50), held=st.none() | st.integers(1, 600))
    def begin(self, which, estimate, held):
        use = intent(estimate)
        until = self.now + (held or 0)
        reservation = Reservation(f"r-{use.event_id}", "2026-11", estimate, until) if held else None
        assert self.boxes[which].begin(use, always, reservation)[0]
        self._end_reservations()
        self.rows[use.event_id] = ("intent", estimate, estimate if held else 0, until)
        return use, reservation

    @rule(use=uses, which=st.integers(0, 1), tokens=st.integers(0, 80))
    def complete(self, use, which, tokens):
        use, _ = use
        self.boxes[which].complete(use, tokens=tokens, unit="tokens")
        status, _, held, until = self.rows.get(use.event_id, ("gone", 0, 0, 0.0))
        if status == "gone":  # discarded before; what it took is not
            self.rows[use.event_id] = ("ready", tokens, 0, 0.0)
        elif status == "intent":
            self.rows[use.event_id] = ("ready", tokens, held, until)

    @rule(use=uses, which=st.integers(0, 1))
    def drop(self, use, which):
        use, reservation = use
        self.boxes[which].drop(use.event_id)
        if self.rows.get(use.event_id, ("gone",))[0] == "intent":
            del self.rows[use.event_id]
            if reservation is not None and reservation.held_until > self.now:
                self.releases.add(reservation.id)

    @rule(target=claims, which=st.integers(0, 1), limit=st.integers(1, 5))
    def claim(self, which, limit):
        rows = self.boxes[which].claim(limit, user_id=None)
        assert all(self.rows[row.event_id][0] == "ready" for row in rows)
        return multiple(*[(which, row) for row in rows])

    @rule(claim=consumes(claims))
    def let_go(self, claim):
        which, row = claim
        self.boxes[which].let_go([row])

    @rule(claim=consumes(claims), status=st.sampled_from(["sent", "rejected", "ready"]))
    def settle(self, claim, status):
        which, row = claim
        self.boxes[which].settle([Settled(row.event_id, status, "why")], versions={})
        before = self.rows[row.event_id]
        if before[0] == "ready":
            self.rows[row.event_id] = (status, *before[1:])

    @rule()
    def retry(self):
        self.boxes[0].retry_rejected()
        for event_id, row in self.rows.items():
            if row[0] == "rejected":
                self.rows[event_id] = ("ready", *row[1:])

    @rule(seconds=st.integers(1, 400))
    def wait(self, seconds):
        self.now += seconds

    def _end_reservations(self):
        for event_id, (status, cost, _, until) in self.rows.items():
            if until <= self.now:
                self.rows[event_id] = (status, cost, 0, until)

    @invariant()
    def rows_and_sums_are_those_of_the_model(self):
        box = self.boxes[0]
        found = box.read("SELECT event_id, status, cost, held FROM event")
        assert {row[0]: row[1:] for row in found} == {key: row[:3] for key, row in self.rows.items()}
        waiting = [row for row in self.rows.values() if row[0] in {"intent", "ready"}]
        unsettled = sum(max(0, cost - held) for _, cost, held, _ in waiting)
        assert known(box).unsettled == unsettled
        [(size,)] = box.read("SELECT coalesce(sum(size), 0) FROM balance")
        assert size == sum(row[0] != "sent" for row in self.rows.values())
        self.releases &= set(box.releases())


TestTheOutboxAgainstAModel = Machine.TestCase
TestTheOutboxAgainstAModel.settings = settings(stateful_step_count=30, phases=(Phase.reuse, Phase.generate))


def test_two_senders_share_the_rows_and_none_is_claimed_twice(outbox):
    ids = {ready(outbox).event_id for _ in range(10)}
    other = Outbox(outbox.path, clock=ServerClock())
    first, second = outbox.claim(6, user_id=None), other.claim(6, user_id=None)
    assert (len(first), len(second)) == (6, 4)
    assert {row.event_id for row in first + second} == ids
    assert other.claim(6, user_id=None) == []
    outbox.let_go(first)
    assert len(other.claim(10, user_id=None)) == 6
    other.close()


def test_what_a_stopped_process_had_claimed_is_sent_by_others_after_a_while(outbox):
    ready(outbox)
    other = Outbox(outbox.path, clock=ServerClock())
    assert len(outbox.claim(1, user_id=None)) == 1
    assert other.claim(1, user_id=None) == []
    with sqlite3.connect(outbox.path) as db:
        db.execute("UPDATE event SET owned_at = owned_at - 1000")
    db.close()
    assert len(other.claim(1, user_id=None)) == 1
    other.close()


def test_a_claim_is_of_one_user_where_the_token_is(outbox):
    ready(outbox)
    ready(outbox, user_id=OTHER_USER)
    assert [row.user_id for row in outbox.claim(10, user_id=OTHER_USER)] == [OTHER_USER]


def test_a_full_outbox_refuses_the_next_use_and_loses_nothing(tmp_path):
    outbox = Outbox(tmp_path / "outbox.sqlite3", clock=ServerClock(), max_rows=3)
    uses = [begun(outbox) for _ in range(3)]
    with pytest.raises(OutboxFull, match="3 rows"):
        outbox.begin(intent(), always)
    outbox.complete(uses[0], tokens=1, unit="tokens")  # what has begun can always be written down
    outbox.settle([Settled(uses[0].event_id, "sent")], versions={})
    begun(outbox)
    outbox.close()


def test_sent_rows_are_kept_for_a_while_and_no_longer(outbox):
    for _ in range(KEPT_SENT // 100 + 2):
        uses = [intent() for _ in range(100)]
        with outbox._file.transaction() as db:
            for use in uses:
                outbox._insert(db, use, "ready", cost=1, month="", tokens=1)
        outbox.settle([Settled(use.event_id, "sent") for use in uses], versions={})
    assert outbox.read("SELECT count(*) FROM event") == [(KEPT_SENT,)]
    assert outbox.read("SELECT count(*) FROM balance") == [(0,)]


def test_a_use_written_down_after_its_intent_was_discarded_is_counted_all_the_same(outbox):
    use = begun(outbox)
    outbox.drop(use.event_id)
    outbox.complete(use, tokens=7, unit="tokens")
    assert [row.tokens for row in outbox.claim(5, user_id=None)] == [7]


def test_the_intent_of_a_living_use_can_be_neither_resolved_nor_discarded(outbox):
    use = begun(outbox)
    assert not outbox.resolve(use.event_id, tokens=1)
    assert not outbox.discard(use.event_id)
    outbox.complete(use, tokens=7, unit="tokens")
    assert [row.tokens for row in outbox.claim(5, user_id=None)] == [7]


def test_a_use_that_ends_after_the_close_is_written_down(outbox):
    use = begun(outbox)
    outbox.close()
    outbox.complete(use, tokens=7, unit="tokens")
    assert [row.tokens for row in outbox.claim(5, user_id=None)] == [7]


def test_every_write_is_durable_before_it_returns(outbox):
    use = ready(outbox)
    assert outbox.read("PRAGMA synchronous") == [(2,)]
    assert outbox.read("PRAGMA journal_mode") == [("wal",)]
    assert outbox.path.with_name(outbox.path.name + "-wal").stat().st_size > 0
    assert outbox.read("SELECT status FROM event WHERE event_id = ?", [use.event_id]) == [("ready",)]


@pytest.mark.skipif(sys.platform == "win32", reason="has other permissions")
def test_the_file_is_its_owner_s_alone(outbox):
    assert outbox.path.stat().st_mode & 0o077 == 0


# The file


def test_a_full_disk_is_named_and_what_was_written_is_kept(outbox):
    ready(outbox)
    [(pages,)] = outbox.read("PRAGMA page_count")
    outbox.read(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for _ in range(1000):
            begun(outbox)

    with pytest.raises(OutboxFailed, match="no room left"):
        fill()
    outbox.read("PRAGMA max_page_count = 1000000")
    assert len(outbox.claim(5, user_id=None)) == 1


def test_a_file_that_is_no_outbox_and_one_that_is_damaged_are_named(tmp_path, outbox):
    text = tmp_path / "notes.txt"
    text.write_bytes(b"These are no rows. " * 500)
    with pytest.raises(OutboxFailed, match="is no outbox"):
        Outbox(text, clock=ServerClock())
    assert text.read_bytes().startswith(b"These are no rows. ")
    for _ in range(50):
        ready(outbox)
    outbox.close()
    raw = bytearray(outbox.path.read_bytes())
    raw[4096:] = b"\x5a" * (len(raw) - 4096)
    outbox.path.write_bytes(raw)
    with pytest.raises(OutboxFailed, match=r"damaged.*recover"):
        ready(outbox)


def test_a_place_where_no_file_can_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "outbox.sqlite3", tmp_path):
        with pytest.raises(OutboxFailed, match="cannot be used"):
            Outbox(path, clock=ServerClock())


def test_a_file_of_a_newer_version_is_left_alone(outbox):
    outbox.read("PRAGMA user_version = 99")
    outbox.close()
    with pytest.raises(OutboxFailed, match="newer version"):
        Outbox(outbox.path, clock=ServerClock())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("file", "directory", "error"), [(0o444, 0o755, "Permission denied"), (0o600, 0o555, "this user may not write it")]
)
def test_a_file_or_directory_that_may_not_be_written_is_named_as_it_is_opened(file, directory, error):
    with tempfile.TemporaryDirectory() as name:  # root's tmp_path is closed to everybody else
        outbox = Outbox(Path(name) / "outbox.sqlite3", clock=ServerClock())
        ready(outbox)
        outbox.close()
        for path, mode in ((outbox.path, file), (outbox.path.parent, directory)):
            os.chown(path, *ordinary())
            path.chmod(mode)

        def look() -> None:
            with pytest.raises(OutboxFailed, match=error):
                Outbox(outbox.path, clock=ServerClock())

        code = in_child(look, *ordinary())
        outbox.path.parent.chmod(0o755)
        assert code == 0


def ordinary() -> tuple[int, int]:
    """A user and group whom permissions hold up: they do not hold up root."""
    return (os.getuid(), os.getgid()) if os.getuid() else (65534, 65534)


def in_child(work, user: int | None = None, group: int | None = None) -> int:
    pid = os.fork()
    if not pid:
        try:
            if user is not None and group is not None and user != os.getuid():
                os.setgroups([])
                os.setgid(group)
                os.setuid(user)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# Many at once

MANY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from uuid import uuid4
from queueops_client.usage.clock import ServerClock
from queueops_client.usage.outbox import Intent, Outbox
outbox = Outbox(Path(sys.argv[1]), clock=ServerClock())
for _ in range(50):
    use = Intent(str(uuid4()), sys.argv[3], "", 3)
    outbox.begin(use, lambda view, cost: True)
    outbox.complete(use, tokens=2, unit="tokens")
outbox.close()
"""


def test_processes_that_make_and_fill_one_file_at_once_lose_no_row(tmp_path):
    path = tmp_path / "new" / "outbox.sqlite3"
    command = [sys.executable, "-c", MANY, str(path), str(SRC), USER]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    outbox = Outbox(path, clock=ServerClock())
    outbox.settle([], {USER: HEARD}, versions={})
    assert outbox.pending(user_id=None) == 200
    assert known(outbox).unsettled == 400
    outbox.close()
    assert not list(path.parent.glob("*.owner"))


def test_the_uses_of_all_processes_lower_what_each_of_them_knows(outbox):
    other = Outbox(outbox.path, clock=ServerClock())
    outbox.settle([], {USER: HEARD}, versions={})
    begun(outbox, estimate=100)
    ready(other, tokens=50)
    assert known(outbox).remaining == known(other).remaining == 10_000 - 150
    other.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_amid_the_writes_of_threads_leaves_both_processes_with_whole_files(outbox):
    stop = threading.Event()

    def write() -> int:
        count = 0
        while not stop.is_set():
            ready(outbox)
            count += 1
        return count

    def in_fork() -> None:
        for _ in range(20):
            ready(outbox)

    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write) for _ in range(2)]
        codes = [in_child(in_fork) for _ in range(6)]
        stop.set()
        written = sum(writer.result(30) for writer in writers)
    assert codes == [0] * 6
    assert outbox.pending(user_id=None) == written + 6 * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_s_rows_survive_the_close_of_its_parent(outbox):
    ready(outbox)
    hold, go = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            ready(outbox)
            select.select([hold], [], [], 30)
            ready(outbox)
            ready(outbox)
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 20
    while outbox.pending(user_id=None) < 2:
        assert time.monotonic() < deadline
    outbox.close()  # as the last one, if the child's locks were its parent's
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert outbox.pending(user_id=None) == 4


def test_the_default_path_is_one_for_each_installation_and_fit_for_every_file_system():
    one, other = default_path("https://a.example:8443/x"), default_path("https://b.example")
    assert one != other
    assert one.is_absolute()
    assert not set(one.name) & set('<>:"/\\|?*')
