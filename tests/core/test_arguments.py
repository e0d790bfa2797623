"""What each command of manage.py says to an argument that is no text, where nothing can be written, when stopped."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from manage import carry_out
from queueops.core.processes.garbage import GARBAGE_AFTER
from tests.support.processes import ROOT

BYTES = b"caf\xe9"


def manage(tmp_path: Path, *arguments: str | bytes, out: int, **environ: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    environ = {"PATH": "", "LANG": "C.UTF-8", "QUEUEOPS_DATA_DIR": str(tmp_path / "data"), **environ}
    return subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "arguments",
    [[BYTES], [b"archive", b"--to", BYTES], [b"move_project", b"acme", b"--to", b"postgresql://u:hush@h/" + BYTES]],
)
def test_it_is_told_by_its_number_before_anything_is_done(arguments, tmp_path: Path):
    told = manage(tmp_path, *arguments, out=subprocess.PIPE)
    out, error = told.communicate(timeout=60)
    assert (told.returncode, out, error) == (1, "", f"Argument {len(arguments)} is not UTF-8.\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
def test_a_full_disk_under_what_it_says_is_told_and_no_traceback(tmp_path: Path):
    full = os.open("/dev/full", os.O_WRONLY)
    told = manage(tmp_path, "write_docs", "--help", out=full)
    os.close(full)
    error = told.communicate(timeout=60)[1]
    assert (told.returncode, error) == (1, "What the command says cannot be written: No space left on device.\n")


def test_a_reader_that_has_gone_is_told_and_no_traceback(tmp_path: Path):
    reader, writer = os.pipe()
    os.close(reader)
    told = manage(tmp_path, "write_docs", "--help", out=writer)
    os.close(writer)
    error = told.communicate(timeout=60)[1]
    assert (told.returncode, error) == (1, "What the command says cannot be written: Broken pipe.\n")


def test_letters_that_the_terminal_does_not_have_are_told_by_their_codes(tmp_path: Path):
    told = manage(tmp_path, "new_handler", "--help", out=subprocess.PIPE, PYTHONIOENCODING="ascii")
    out, error = told.communicate(timeout=60)
    assert (told.returncode, error) == (0, "")
    assert out.isascii()


def test_a_command_that_is_interrupted_ends_so(tmp_path: Path):
    listener = socket.create_server(("127.0.0.1", 0))  # a database that takes the connection and says nothing
    url = f"postgresql://u:p@127.0.0.1:{listener.getsockname()[1]}/none"
    told = manage(tmp_path, "resume", out=subprocess.PIPE, DATABASE_URL=url)
    with listener:
        held, _ = listener.accept()
        with held:
            told.send_signal(signal.SIGINT)
            error = told.communicate(timeout=60)[1]
    assert (told.returncode, error) == (130, "Interrupted.\n")


def test_a_command_collects_garbage_seldom_from_its_first_import_on(monkeypatch: pytest.MonkeyPatch):
    before = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["manage.py", "help"])
    gc.set_threshold(700, 10, 10)
    try:
        carry_out()
        assert gc.get_threshold()[0] == GARBAGE_AFTER
    finally:
        gc.set_threshold(*before)
