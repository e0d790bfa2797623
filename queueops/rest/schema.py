"""Adds to the OpenAPI document what the views' types do not say: errors, headers, examples, security."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from rest_framework.request import Request

from .inputs import Input

ALWAYS = {
    400: (
        "malformed_json",
        "The body is not valid JSON, or a query parameter is wrong; `project_required`: a session names no project.",
    ),
    401: (
        "not_authenticated",
        "No key or token was sent; `invalid_key`, `invalid_token`, `expired_token`: it counts for nothing, or no more.",
    ),
    403: (
        "missing_scope",
        "The caller's scopes or permissions do not cover this; `not_for_users`, `foreign_user`: not an end user's.",
    ),
    404: ("not_found", "The project has nothing with this id; `unknown_project`: there is no such project."),
    410: (
        "project_moved",
        (
            "The project lives in another installation; `details.address` says where. `other_epoch`: the cursor is of "
            "a log before the database was restored: begin again, without a cursor."
        ),
    ),
    429: ("throttled", "Too many requests; Retry-After says when to try again."),
    500: ("internal_error", "A bug. It is in the server's log."),
    503: (
        "database_unavailable",
        (
            "The database does not answer; `database_read_only`, `database_full`, `database_out_of_memory`, "
            "`database_connections_used_up`: it says why; `overloaded`: too many requests wait; `project_moving`: it "
            "is being moved to another installation. Nothing was stored; "
            "Retry-After says when to try again."
        ),
    ),
}
OTHERS = {
    409: ("wrong_state", "The state it is in now does not allow this."),
    413: ("payload_too_large", "The body, a payload or the number of jobs is too large."),
    415: ("unsupported_media_type", "The body has another media type."),
    422: ("invalid_input", "The body is JSON but not what is expected; `fields` says what is wrong where."),
}

NOT_EMPTY = r"^[^\x00]*[^\s\x00][^\x00]*$"

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description=(
        "1 to 200 printable ASCII characters. The same request again within 7 days gets the stored "
        "answer with the header `Idempotency-Replayed: true`; another request with the same key is "
        "refused with 422."
    ),
)


class ErrorDetail(BaseModel):
    code: str = Field(description="Stable: decide by it, not by the message.")
    message: str
    fields: dict[str, list[str]] | None = Field(default=None, description="What is wrong, by the path of the field.")
    details: dict[str, Any] | None = Field(default=None, description="Figures, by error code.")


class Error(BaseModel):
    error: ErrorDetail


class ProducerKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "queueops.tenancy.callers.authentication.ProducerKeyAuthentication"
    name = ["bearerKey", "headerKey"]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer qo_…`"},
            {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        ]


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "queueops.tenancy.callers.authentication.TokenAuthentication"
    name = "userToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A token of an issuer that the project trusts; it sees and does what is its user's.",
        }


class AnonymousScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "queueops.tenancy.callers.authentication.AnonymousAuthentication"
    name = "anonymous"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "X-Project",
            "description": "Reading jobs and batches of a project that shows itself to everybody.",
        }


class OperatorSessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "queueops.tenancy.callers.authentication.OperatorSessionAuthentication"
    name = "operatorSession"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionid",
            "description": "The admin's session; name the project in X-Project, and send the CSRF token.",
        }


def describe_requests(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """
    Add what the views' types do not say: text parameters may not be empty, and which bodies may be left out. Tags that
    come from addresses have dashes.
    """
    for methods in result["paths"].values():
        for described in methods.values():
            described["tags"] = [tag.replace("-", " ") for tag in described["tags"]]
            for parameter in described.get("parameters", ()):
                schema = parameter["schema"]
                if parameter["in"] == "query" and schema.get("type") == "string" and "format" not in schema:
                    schema.setdefault("pattern", NOT_EMPTY)
                if parameter["in"] == "query" and schema.get("type") == "array":
                    schema["minItems"] = 1
            if body := described.get("requestBody"):
                body["required"] = any(_needs_a_body(media["schema"], result) for media in body["content"].values())
    return result


def _needs_a_body(schema: dict[str, Any], document: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema.get("type") != "object" or bool({"required", "oneOf"} & set(schema))


def operation(
    summary: str,
    *,
    operation_id: str,
    answer: Any,
    example: Any,
    status: int = 200,
    other_answers: Mapping[Any, Any] | None = None,
    body: Any = None,
    query: type[Input] | None = None,
    body_example: Any = None,
    lines_example: str | None = None,
    errors: Sequence[int] = (),
    parameters: Sequence[OpenApiParameter] = (),
    answers_once: bool = False,
    tag: str | None = None,
    description: str = "",
) -> Callable[[Any], Any]:
    """
    Describe one method of a view, and read its `body` and `query` for it: an `Input` is an argument of that name.

    Args:
        example: An example of the answer; for a list, of one row.
        other_answers: By status, or by status and content type where there are several.
        errors: Statuses besides those that every operation may answer with.
        answers_once: The operation honours Idempotency-Key.
        tag: By default the first word of the address.
    """
    examples = [
        OpenApiExample("Answer", value=example, response_only=True, status_codes=[str(status)]),
    ]
    if body_example is not None:
        examples.append(OpenApiExample("Request", value=body_example, request_only=True, media_type="application/json"))
    if lines_example is not None:
        examples.append(
            OpenApiExample("Lines", value=lines_example, request_only=True, media_type="application/x-ndjson")
        )
    with_body = {413, 415, 422} if body is not None else set()
    refusals = sorted({*ALWAYS, *errors, *with_body})
    described = extend_schema(
        operation_id=operation_id,
        summary=summary,
        description=description or summary,
        tags=[tag] if tag else None,
        request=body,
        parameters=[*_parameters(query), *parameters, *([IDEMPOTENCY_KEY] if answers_once else [])],
        responses={status: answer, **(other_answers or {}), **{code: _refusal(code) for code in refusals}},
        examples=examples,
    )
    reads_body = isinstance(body, type) and issubclass(body, Input)
    return lambda method: described(_reading(method, body if reads_body else None, query))


def _reading(method: Any, body: type[Input] | None, query: type[Input] | None) -> Any:
    @wraps(method)
    def read_first(view: Any, request: Request, **arguments: Any) -> Any:
        if body is not None:
            arguments["body"] = view.read(body)
        if query is not None:
            arguments["query"] = view.read_query(query)
        return method(view, request, **arguments)

    handler: Any = read_first
    handler.query = [parameter.name for parameter in _parameters(query)]
    return handler


def _parameters(query: type[Input] | None) -> list[OpenApiParameter]:
    return [
        OpenApiParameter(
            field.alias or name, description=field.description or "", required=field.is_required(), **_type_of(field)
        )
        for name, field in (query.model_fields.items() if query else ())
    ]


def _type_of(field: FieldInfo) -> dict[str, Any]:
    if get_origin(field.annotation) is Literal:
        return {"type": str, "enum": get_args(field.annotation)}
    if get_origin(field.annotation) is tuple:  # separated by commas
        return {"type": str}
    [plain] = {*(get_args(field.annotation) or [field.annotation])} - {NoneType}
    return {"type": plain}


def _refusal(status: int) -> OpenApiResponse:
    code, description = (ALWAYS | OTHERS)[status]
    value = {"error": {"code": code, "message": description}}
    return OpenApiResponse(Error, description, [OpenApiExample(code, value=value, response_only=True)])
