"""Points in time as others write them: one rule for bodies, query parameters, files and screens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter
from pydantic_core import PydanticCustomError

# ISO 8601 allows offsets of up to 23:59, but PostgreSQL only these: MAX_TZDISP_HOUR in datatype/timestamp.h.
MAX_OFFSET = timedelta(hours=15, minutes=59)
RULE = "Write a date, a time and its offset of at most 15:59 hours, such as 2026-03-02T09:00:00Z"
PATTERN = r"^\d{4}-\d{2}-\d{2}[Tt ].*([Zz]|[+-](0\d|1[0-5]):?[0-5]\d)$"  # checks the offset; `format` checks the rest


def _written_out(given: object) -> object:
    # Pydantic would read a number, also a number in a text, as seconds since 1970.
    if isinstance(given, datetime) or (isinstance(given, str) and given[4:5] == "-"):
        return given
    raise PydanticCustomError("time_format", RULE)


def _with_offset(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise PydanticCustomError("time_format", RULE)
    return moment


def with_storable_offset(moment: datetime) -> datetime:
    """
    Return the moment unchanged.

    Raises:
        ValueError: PostgreSQL cannot read its offset; the message is RULE.
    """
    if abs(moment.utcoffset() or timedelta(0)) > MAX_OFFSET:
        raise PydanticCustomError("time_offset", RULE)
    return moment


def in_utc(moment: datetime) -> datetime:
    """
    Return the moment in UTC.

    Raises:
        ValueError: Its UTC year is outside 1 to 9999: PostgreSQL would store it, but Python could not read it back.
    """
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("time_range", "Outside the calendar: in UTC it has no year of 1 to 9999") from None


# A moment to compare with. It keeps its offset for PostgreSQL to read: converting it to UTC may leave the years 1 to
# 9999.
Moment = Annotated[
    datetime,
    BeforeValidator(_written_out),
    AfterValidator(_with_offset),
    AfterValidator(with_storable_offset),
    Field(json_schema_extra={"pattern": PATTERN}),
]
# A moment to be stored. It is converted to UTC, so that any offset is allowed; see `in_utc` for what is refused.
MomentInUTC = Annotated[datetime, BeforeValidator(_written_out), AfterValidator(_with_offset), AfterValidator(in_utc)]

_MOMENT: TypeAdapter[datetime] = TypeAdapter(Moment)


def parse_moment(text: Any) -> datetime:
    """
    Raises:
        ValueError: The text breaks RULE.
    """
    return _MOMENT.validate_python(text)
