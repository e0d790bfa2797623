"""
How rows of a project go with it to another installation: one sort of rows is read by one SELECT, which is asked again
on both sides to compare.

The SELECT therefore names nothing that the other database chooses by itself: numbers of rows, sealed secrets.
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
        rows: Which of the table's, as a condition on `own`.
        leaves: Columns that the other database fills by itself.
        read: Instead of all other columns of these rows, as they are.
        write: How rows that were read, in the table `given`, come into the other database; in this order.
        known_by: The column of `given` that names a row's sealed secret, which is in the table `sealed` as `name`.
        is_watched: People may change such rows while the project is paused: the move looks whether anybody did.
        names_jobs: They come after the jobs and batches that they name.
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
