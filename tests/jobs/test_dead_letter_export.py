"""Dead letters as CSV and NDJSON."""

import csv
import io
import json

import pytest

from jobs.models import DeadLetter
from jobs.services.operate import export
from queueops.core.values.csv_lines import csv_line
from tests.factories import make_dead_letters
from tests.support.cases import every_case


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


@pytest.mark.proves("S13")
@every_case("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_csv_cell_can_act_as_a_formula(start):
    [[cell, number]] = csv.reader(io.StringIO(csv_line([f"{start}cmd|' /C calc'!A0", -1]), newline=""))
    assert cell == f"'{start}cmd|' /C calc'!A0"
    assert number == "-1"
