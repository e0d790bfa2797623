"""The payloads of the kinds `google_sheets.*`, checked when a job is submitted."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

import pydantic_core
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

SERVICE = "google-sheets"
MAX_SHEETS_BODY_BYTES = 2_000_000  # Google advises to split larger bodies, and such calls come near its limit of 180 s
MAX_CELL_CHARACTERS = 50_000
MAX_RANGE_CHARACTERS = 500
MAX_REQUESTS = 10_000
MAX_PAGE_ROWS = 50_000

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MASK = re.compile(r"[A-Za-z0-9_*.,/() ]+")


def _is_a_range(text: str) -> str:
    if _UNSAFE.search(text):
        raise ValueError("a range has no control characters")
    return text


Range = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_RANGE_CHARACTERS,
        description="In A1 notation, `Sheet1!A2:C9`; quote titles with spaces: `'My sheet'!A:C`.",
    ),
    AfterValidator(_is_a_range),
]
Text = Annotated[str, Field(max_length=MAX_CELL_CHARACTERS)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Cell = bool | int | Number | Text | None
Values = Annotated[
    list[list[Cell]],
    Field(min_length=1, description='Rows of cells; null leaves a cell as it is, "" empties it.'),
]
Dimension = Literal["ROWS", "COLUMNS"]
InputOption = Annotated[
    Literal["RAW", "USER_ENTERED"],
    Field(description="Whether text is stored as it is, or read as if typed: numbers, dates, formulas."),
]


class SheetsCall(BaseModel):
    """The fields that every call has. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    credential: str = Field(
        default=SERVICE, pattern=r"^[-a-zA-Z0-9_]{1,100}$", description="Name of the credential to use."
    )
    spreadsheet_id: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,120}$", description="From the spreadsheet's address, between /d/ and /edit."
    )


class _Writing(SheetsCall):
    range: Range
    values: Values
    major_dimension: Dimension = "ROWS"
    value_input_option: InputOption = "RAW"

    @field_validator("values")
    @classmethod
    def _fit_one_call(cls, values: list[list[Cell]]) -> list[list[Cell]]:
        _require_size("values", values)
        return values


class ValuesUpdate(_Writing):
    """Write one range."""


class ValuesAppend(_Writing):
    """Add rows below a table."""

    insert_data_option: Literal["OVERWRITE", "INSERT_ROWS"] | None = Field(
        default=None,
        description="Whether rows are inserted or what lies below is overwritten; null: as the service does.",
    )

    @property
    def table(self) -> str:
        """A key of the table: appends with equal keys may leave as one call."""
        return f"{self.spreadsheet_id}|{self.value_input_option}|{self.insert_data_option or ''}|{self.range}"


class ValuesGet(SheetsCall):
    """Read one range."""

    range: Range
    major_dimension: Dimension = "ROWS"
    value_render_option: Literal["FORMATTED_VALUE", "UNFORMATTED_VALUE", "FORMULA"] = "FORMATTED_VALUE"
    date_time_render_option: Literal["SERIAL_NUMBER", "FORMATTED_STRING"] = "SERIAL_NUMBER"
    page_rows: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PAGE_ROWS,
        description="Rows of one call; null: as many as 50,000 cells, where the range states both its ends.",
    )

    @model_validator(mode="after")
    def _pages_are_rows(self) -> Self:
        if self.page_rows is not None and self.major_dimension != "ROWS":
            raise ValueError("page_rows goes with major_dimension ROWS")
        return self

    @property
    def options(self) -> dict[str, str]:
        return {
            "majorDimension": self.major_dimension,
            "valueRenderOption": self.value_render_option,
            "dateTimeRenderOption": self.date_time_render_option,
        }


class BatchUpdate(SheetsCall):
    """Any subrequests of spreadsheets.batchUpdate: all are applied, or none."""

    requests: list[dict[str, JsonValue]] = Field(min_length=1, max_length=MAX_REQUESTS)
    fields: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Field mask of a reply, `addSheet.properties.sheetId`; null: the whole reply.",
    )
    idempotent: bool = Field(
        default=False, description="Applying the requests twice does no harm, so an unknown outcome is tried again."
    )

    @field_validator("requests")
    @classmethod
    def _are_requests(cls, requests: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
        for index, request in enumerate(requests):
            if len(request) != 1:
                raise ValueError(f'requests[{index}] must have exactly one key, its kind, such as "addSheet"')
            kind, body = next(iter(request.items()))
            if not re.fullmatch(r"[a-z][A-Za-z]{0,99}", kind) or not isinstance(body, dict):
                raise ValueError(f"requests[{index}]: {kind[:100]!r} must be a kind of request with an object")
        _require_size("requests", requests)
        return requests

    @field_validator("fields")
    @classmethod
    def _is_a_mask(cls, mask: str | None) -> str | None:
        if mask is not None and (not _MASK.fullmatch(mask) or not _is_balanced(mask)):
            raise ValueError("a field mask has names, dots, commas and brackets only")
        return mask


def _is_balanced(mask: str) -> bool:
    depth = 0
    for letter in mask:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0


def _require_size(name: str, value: object) -> None:
    size = len(pydantic_core.to_json(value))
    if size > MAX_SHEETS_BODY_BYTES:
        raise ValueError(f"{name}: {size:,} bytes of JSON; a call takes at most {MAX_SHEETS_BODY_BYTES:,}, split it")
