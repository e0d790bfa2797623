"""The payload of `http.request`, checked when a job is submitted."""

import json
import re
from typing import Annotated, Literal, Self

from django.conf import settings
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from queueops.core.outbound.client import RESERVED_HEADERS, checked_headers
from queueops.core.outbound.policy import OutboundPolicy, OutboundRefused, parse_target

from .answers import MAX_SECRETS, secrets_in

MAX_HEADERS = 50
MAX_HEADER_CHARACTERS = 16_384
MAX_HTTP_ANSWER_BYTES = 5_000_000
MAX_HTTP_SECONDS = 55.0

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD"})
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # OPTIONS and DELETE may have one

_RANGE = re.compile(r"([1-5][0-9]{2})-([1-5][0-9]{2})")
Status = Annotated[int, Field(ge=100, le=599)]


def outbound_policy() -> OutboundPolicy:
    """Return the policy by which handlers call out, as the settings say."""
    return OutboundPolicy.of(allow_loopback=settings.QUEUEOPS.allow_loopback_targets)


class HttpRequest(BaseModel):
    """One HTTP call. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
    url: str
    headers: dict[str, str] = Field(default_factory=dict)
    text: str | None = Field(default=None, description="The body as text; at most one of text and json.")
    json_body: JsonValue = Field(
        default=None, alias="json", description="The body as JSON, sent as it is written here; null sends none."
    )
    expected_statuses: list[Status | str] = Field(
        default=["200-299"], min_length=1, max_length=50, description='Statuses and ranges such as "200-299".'
    )
    max_response_bytes: int = Field(default=1_000_000, ge=0, le=MAX_HTTP_ANSWER_BYTES)
    timeout_seconds: float = Field(default=30.0, gt=0, le=MAX_HTTP_SECONDS, allow_inf_nan=False)
    follow_redirects: bool = False
    credential: str | None = Field(
        default=None,
        pattern=r"^[-a-zA-Z0-9_]{1,100}$",
        description="Name of the credential, or pool of them, to show. It goes to its own hosts alone.",
    )
    idempotency_header: str | None = Field(
        default=None,
        description="The header in which the provider expects a key that makes a call repeatable.",
    )

    @field_validator("url")
    @classmethod
    def _may_be_called(cls, url: str) -> str:
        try:
            parse_target(url, policy=outbound_policy())
        except OutboundRefused as refusal:
            raise ValueError(refusal.message) from None
        return url

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        if len(headers) > MAX_HEADERS:
            raise ValueError(f"at most {MAX_HEADERS} headers")
        if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADER_CHARACTERS:
            raise ValueError(f"at most {MAX_HEADER_CHARACTERS:,} characters of headers")
        _check_headers(headers)
        if len(secrets_in(headers)) > MAX_SECRETS:
            raise ValueError(f"at most {MAX_SECRETS} cookies and other secrets")
        return headers

    @field_validator("idempotency_header")
    @classmethod
    def _is_a_header_name(cls, name: str | None) -> str | None:
        if name is not None:
            _check_headers({name: ""})
        return name

    @field_validator("expected_statuses")
    @classmethod
    def _are_statuses(cls, statuses: list[int | str]) -> list[int | str]:
        for status in statuses:
            if isinstance(status, str):
                _bounds(status)
        return statuses

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.text is not None and self.json_body is not None:
            raise ValueError("give text or json, not both")
        if self.text is not None:
            self.text.encode()
        if self.json_body is not None:
            json.dumps(self.json_body, allow_nan=False)
        if self.method in METHODS_WITHOUT_BODY and (self.text is not None or self.json_body is not None):
            raise ValueError(f"a {self.method} request has no body")
        if self.idempotency_header and self.idempotency_header.lower() in {name.lower() for name in self.headers}:
            raise ValueError(f"{self.idempotency_header} is set by idempotency_header; remove it from headers")
        return self

    @property
    def is_idempotent(self) -> bool:
        return self.method in IDEMPOTENT_METHODS or self.idempotency_header is not None

    def expects(self, status: int) -> bool:
        return any(
            status == expected if isinstance(expected, int) else _bounds(expected)[0] <= status <= _bounds(expected)[1]
            for expected in self.expected_statuses
        )

    def body(self, otherwise: JsonValue = None, *, written: str | None = None) -> tuple[bytes | None, str | None]:
        """
        Return the body and its default content type.

        Args:
            otherwise: The JSON to send if the request has no body and its method has one.
            written: The `json` as the producer wrote it. It is sent unchanged: a signature may cover these very bytes.
        """
        if self.text is not None:
            return self.text.encode(), "text/plain; charset=utf-8"
        if self.json_body is not None and written is not None:
            return written.encode(), "application/json"
        given = otherwise if self.json_body is None and self.method in METHODS_WITH_BODY else self.json_body
        if given is None:
            return None, None
        return json.dumps(given, separators=(",", ":")).encode(), "application/json"


def _check_headers(headers: dict[str, str]) -> None:
    try:
        checked_headers(headers)
    except OutboundRefused as refusal:
        raise ValueError(refusal.message) from None
    for name in headers:
        if name.lower() in RESERVED_HEADERS:
            raise ValueError(f"{name} is set by QueueOps")


def _bounds(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None or match[1] > match[2]:
        raise ValueError(f'{text!r} is no range of statuses; write "200-299" or 404')
    return int(match[1]), int(match[2])
