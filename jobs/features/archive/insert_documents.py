"""Puts archived rows back into their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from queueops.core.sql import hot_cursor

SOURCE = "unnest(%s::text[]) AS line, jsonb_path_query(line::jsonb, %s::jsonpath) AS document"
COLUMNS = f"""
SELECT DISTINCT name FROM {SOURCE}, jsonb_object_keys(document) AS name
 WHERE name IN (SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped)
"""  # noqa: S608 - our own words
INSERT = """
INSERT INTO {table} ({columns})
SELECT {values} FROM unnest(%s::text[]) AS line, jsonb_path_query(line::jsonb, %s::jsonpath) AS document,
       jsonb_populate_record(NULL::{table}, document) AS record
    ON CONFLICT DO NOTHING
"""


def insert_documents(
    table: str, lines: Sequence[str], path: str, *, instead: Mapping[str, sql.SQL] | None = None
) -> int:
    """
    Insert the documents that a JSON path finds in each line: their keys are the table's columns. Existing rows stay.

    Columns of a newer version, which the documents lack, get their defaults; keys without a column are left out.

    Args:
        instead: By column, SQL that replaces the column's value; it may read `record`.

    Returns:
        How many rows were inserted.
    """
    given = list(lines)
    # Django's cursors would write the lines into the text, and the driver remembers its last hundred texts.
    with hot_cursor() as cursor:
        cursor.execute(COLUMNS, [given, path, table])
        names = [name for (name,) in cursor.fetchall()]
        if not names:
            return 0
        own = instead or {}
        values = [own.get(name) or sql.Identifier("record", name) for name in names]
        statement = sql.SQL(INSERT).format(
            table=sql.Identifier(table),
            columns=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(values),
        )
        cursor.execute(statement, [given, path])
        return int(cursor.rowcount)
