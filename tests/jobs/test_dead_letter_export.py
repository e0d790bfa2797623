"""Dead letters as CSV and NDJSON."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import AsyncRequestFactory

from jobs.admin.dead_letters.bulk import export_matching
from jobs.models import DeadLetter
from jobs.services.operate import export
from queueops.core.values.csv_lines import csv_line
from queueops.core.web import downloads
from tests.factories import make_dead_letters
from tests.support.cases import every_case
from tests.support.processes import wait_for


@pytest.mark.django_db
def test_ndjson_holds_one_object_a_line_over_several_pages(monkeypatch):
    monkeypatch.setattr(export, "LETTERS_AT_ONCE", 2)
    letters = make_dead_letters(5, note="Grüße\nzwei\u2028\x85")
    lines = list(export.dead_letters_as_ndjson(DeadLetter.objects.all()))
    rows = [json.loads(line) for line in lines]
    assert [row["id"] for row in rows] == [str(letter.pk) for letter in letters]
    assert all(len(line.splitlines()) == 1 for line in lines)
    assert rows[0]["payload"] == letters[0].payload
    assert rows[0]["note"] == "Grüße\nzwei\u2028\x85"


@pytest.mark.django_db
def test_csv_can_be_read_back():
    [letter] = make_dead_letters(1, note='a "quoted", line\nand another')
    text = "".join(export.dead_letters_as_csv(DeadLetter.objects.all()))
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row["id"] == str(letter.pk)
    assert row["note"] == 'a "quoted", line\nand another'
    assert json.loads(row["payload"]) == letter.payload


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_an_export_is_read_while_it_is_sent_and_keeps_no_connection(monkeypatch):
    monkeypatch.setattr(export, "LETTERS_AT_ONCE", 1)
    monkeypatch.setattr(downloads, "PIECE_BYTES", 1)
    letters = make_dead_letters(3)
    request = AsyncRequestFactory().get("/")
    request.user = User.objects.create_superuser("ada")
    answer: Any = export_matching(None, request, form="ndjson")

    async def some(pieces: int) -> list[str]:
        return [json.loads(await anext(content))["id"] for _ in range(pieces)]

    content: AsyncIterator[bytes] = aiter(answer)
    with asyncio.Runner() as runner:
        assert runner.run(some(1)) == [str(letters[0].pk)]
        DeadLetter.objects.filter(pk=letters[1].pk).delete()
        assert runner.run(some(1)) == [str(letters[2].pk)]
        wait_for(lambda: sessions() == 1, what="the end of the other connections")


@pytest.mark.proves("S13")
@every_case("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_csv_cell_can_act_as_a_formula(start):
    [[cell, number]] = csv.reader(io.StringIO(csv_line([f"{start}cmd|' /C calc'!A0", -1]), newline=""))
    assert cell == f"'{start}cmd|' /C calc'!A0"
    assert number == "-1"
