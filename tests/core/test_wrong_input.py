"""Commands of operations to whom something wrong is said: one sentence that names it, and nothing is done."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from jobs.features.archive.day_files import MANIFEST_NAME
from queueops.audit.models import AuditEntry
from tests.factories import make_project
from tests.support.all_faults import all_faults

pytestmark = pytest.mark.django_db

LONG = "x" * 5000


WRONG = [
    (["check_ledger", "--project", "nobody"], "There is no project 'nobody'."),
    (["check_ledger", "--repair", "--reason", "r", "--project", ""], "There is no project ''."),
    (["encrypt_payloads", "--project", ""], "There is no project ''."),
    (["encrypt_payloads", "--project", "nobody"], "There is no project 'nobody'."),
    (["archive", "--stop", "--dry-run"], "--stop goes with no other option."),
    (["archive", "--stop", "--to", "{here}"], "--stop goes with no other option."),
    (
        ["replay", "--since", "2026-02-01T00:00:00Z", "--until", "2026-01-01T00:00:00Z"],
        "--since must be before --until.",
    ),
    (["unarchive", "--from", "{here}", "--verify"], "{here} is no archive: its other/manifest.json belongs to no"),
    (["unarchive", "--from", "{empty}", "--verify"], "{empty} has nothing archived: is that where the archive is?"),
    (["unarchive", "--from", "{here}", "--project", "acme", "--day", "soon"], "'soon' is no day"),
    (["backup", LONG], "File name too long"),
    (["reconcile", LONG], "File name too long"),
    (["reconcile", "{here}/other/manifest.json/x"], "cannot be read: Not a directory."),
    (["move_project", "acme", "--to", "", "--yes"], "--to must be postgresql://user:password@host:port/name."),
    (["move_project", "acme", "--to", "mysql://u:hush@h/n"], "--to must be postgresql://"),
]


def test_it_is_told_in_one_sentence_and_nothing_is_done(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_project("acme")
    here, empty = tmp_path / "here", tmp_path / "empty"
    (here / "other").mkdir(parents=True)
    empty.mkdir()
    (here / "other" / MANIFEST_NAME).write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    with all_faults() as of:
        for words, told in WRONG:
            out, err = StringIO(), StringIO()
            with of(" ".join(words)[:80]):
                with pytest.raises(CommandError) as refused:
                    call_command(*(word.format(here=here, empty=empty) for word in words), stdout=out, stderr=err)
                said = str(refused.value)
                assert told.format(here=here, empty=empty) in said
                assert "hush" not in said
                assert "\n" not in said
                assert (out.getvalue(), err.getvalue()) == ("", "")
                assert sorted(tmp_path.rglob("*")) == before
                assert not AuditEntry.objects.exists()
