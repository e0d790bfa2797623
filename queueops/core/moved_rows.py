"""
How a project's rows move with it to another installation. One SELECT reads one sort of rows, and is run again on both
sides to compare them.

The SELECT therefore names no column whose value the other database chooses itself: row numbers and sealed secrets.
"""

from __future__ import annotations

from dataclasses import dataclass

PROJECT = "{project}"  # stands for the project's id, as a literal
OF_PROJECT = f"project_id = {PROJECT}"
OF_KEY = f"(own.key = 'project:' || {PROJECT} OR starts_with(own.key, 'project:' || {PROJECT} || '/'))"
WHOLE = "SELECT {columns} FROM {table} AS own WHERE {rows}"
INSERT = "INSERT INTO {table} ({columns}) SELECT {columns} FROM given"


@dataclass(frozen=True, slots=True)
class Sort:
    """
    One sort of rows.

    Attributes:
        rows: Which rows of the table, as a condition on `own`.
        leaves: Columns that the other database fills itself.
        read: The SELECT; by default it reads all columns of these rows except `leaves`.
        write: Statements that store the rows of the table `given` in the other database, run in this order.
        known_by: The column of `given` that finds a row's sealed secret: it equals `name` in the table `sealed`.
        is_watched: People may change such rows while the project is paused, so the move checks whether anybody did.
        names_jobs: The rows name jobs and batches, and are written after these.
    """

    name: str
    table: str
    rows: str = OF_PROJECT
    leaves: frozenset[str] = frozenset()
    read: str = WHOLE
    write: tuple[str, ...] = (INSERT,)
    known_by: str = ""
    is_watched: bool = False
    names_jobs: bool = False


NUMBERED = frozenset({"id"})
SEALED = """
INSERT INTO {table} ({columns}, secret)
SELECT {columns}, (SELECT sealed.secret FROM sealed WHERE sealed.name = given.{known_by}::text) FROM given"""
