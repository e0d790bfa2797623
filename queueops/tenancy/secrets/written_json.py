"""A column of JSON kept exactly as it was written: digits, order of keys and size do not change."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from django.db import models
from django.db.models.expressions import Col, Func
from django.db.models.functions import Cast
from django.db.models.lookups import Lookup

from .encryption import SealedJSONField


class WrittenJSONField(SealedJSONField):
    """
    A JSON value stored as text. It is sealed as a whole if its project's payloads are encrypted.

    jsonb would rewrite numbers: 1e308 comes back as 309 digits, sixty times as long, and 6.02214076e23 as an integer
    instead of a double. If a row's text is null, its value is in an earlier column of type jsonb.

    Args:
        before: The name of that earlier column.
    """

    def __init__(self, *args: Any, before: str, **kwargs: Any) -> None:
        self.before = before
        super().__init__(*args, whole=True, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs

    def clone(self) -> WrittenJSONField:
        _, _, args, kwargs = self.deconstruct()
        return type(self)(*args, before=self.before, **kwargs)

    def db_type(self, connection: Any) -> str:
        return "text"

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return None if value is None else json.dumps(value, cls=self.encoder)

    def get_col(self, alias: str, output_field: models.Field[Any, Any] | None = None) -> _EitherColumn:
        return _EitherColumn(alias, self, output_field)

    @cached_property
    def cached_col(self) -> _EitherColumn:
        return _EitherColumn(self.model._meta.db_table, self)  # noqa: SLF001 - as Django's own does

    def get_lookup(self, lookup_name: str) -> type[Lookup[Any]] | None:
        found = super().get_lookup(lookup_name)
        return found if found is None or lookup_name == "isnull" else _of_the_value(found)

    def get_transform(self, lookup_name: str) -> Any:
        made: Any = super().get_transform(lookup_name)
        return lambda column, *rest: made(_value(column), *rest)


class _EitherColumn(Col):
    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[str | int, ...]]:
        field: Any = self.target
        table, quoted = compiler.quote_name_unless_alias(self.alias), connection.ops.quote_name
        return f"coalesce({table}.{quoted(field.column)}, {table}.{quoted(field.before)}::text)", ()


class WrittenBytes(Func):
    """
    How many bytes a WrittenJSONField's value has as JSON text; 0: it is null.

    A large value of the earlier column is not decompressed: it counts as 8 MB, as in
    jobs/sql/fragments/claim_bytes.sql.
    """

    output_field = models.BigIntegerField()

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        column: Any = self.source_expressions[0]
        table, field = compiler.quote_name_unless_alias(column.alias), column.target
        text, before = (f"{table}.{connection.ops.quote_name(name)}" for name in (field.column, field.before))
        unpacked = f"CASE WHEN pg_column_size({before}) < 20000 THEN octet_length({before}::text)"
        return f"coalesce(octet_length({text}), {unpacked} WHEN {before} IS NOT NULL THEN 8000000 END, 0)", []


def _of_the_value(lookup: type[Lookup[Any]]) -> type[Lookup[Any]]:
    """Return a lookup that compares the JSON value; its column holds text."""

    def begin(self: Any, column: Any, *rest: Any) -> None:
        lookup.__init__(self, _value(column), *rest)

    return type(lookup.__name__, (lookup,), {"__init__": begin})


def _value(column: Any) -> Cast:
    return Cast(column, models.JSONField())
