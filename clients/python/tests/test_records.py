"""Records as they are read from JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from queueops_client import records


def test_every_moment_of_a_record_is_read_as_one() -> None:
    found = [value for value in vars(records).values() if isinstance(value, type) and is_dataclass(value)]
    moments = {
        f"{record.__name__}.{field.name}": field.name in records.PARSERS
        for record in found
        if issubclass(record, records.Record)
        for field in fields(record)
        if str(field.type).removesuffix(" | None") == "datetime"
    }
    assert len(moments) > 20
    assert [name for name, is_read in moments.items() if not is_read] == []
