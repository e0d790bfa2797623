"""Plans of the statements in `<app>/sql/`, as a prepared statement gets them, and what they read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from django.db import connection, transaction
from psycopg import sql

from queueops.core.sql import load_sql


def explain_file(package: str, name: str, **parameters: Any) -> dict[str, Any]:
    """Plan and run a statement of `<package>/sql/` as a prepared one, as run_sql does; its changes are undone."""
    text = load_sql(package, name, parameters.pop("variant", ""))
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, parameter in enumerate(names, 1):
        text = text.replace(f"%({parameter})s", f"${number}")
    values = sql.SQL(", ").join(sql.Literal(parameters[parameter]) for parameter in names)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"PREPARE hot AS {text.replace('%%', '%')}")
        call = sql.SQL("EXECUTE hot ({})").format(values) if names else sql.SQL("EXECUTE hot")
        plan = explain(call.as_string(connection.connection))
        cursor.execute("DEALLOCATE hot")
        transaction.set_rollback(True)
    return plan


def explain(statement: str) -> dict[str, Any]:
    """Run a statement, undo it, and return its plan with what each node has read."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement)
        [found] = cursor.fetchone()
        transaction.set_rollback(True)
    [plan] = json.loads(found) if isinstance(found, str) else found
    return dict(plan["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def rows_read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def blocks_touched(plan: dict[str, Any]) -> int:
    """8 kB pages, read or found in memory, of the whole statement."""
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
