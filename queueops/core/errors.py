"""The base of every expected error, and the one shape in which errors are shown."""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from queueops.core.values.near_names import nearest

MAX_FIELDS_TOLD = 50  # of one error; a body with 150,000 wrong fields would get an answer of megabytes


class QueueOpsError(Exception):
    """
    Something that callers must expect; anything else is a bug and becomes a 500.

    Subclasses set `code` (stable, part of the API; the message is not), the HTTP `status` and
    `detail_fields`, the names of the keyword arguments that `details` reports:

        raise TooManyJobs("At most 1,000 jobs at once.", given=2_000, limit=1_000)

    `fields` maps an input field's path to what is wrong with it, where the error is about input.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 400
    detail_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str = "", *, fields: dict[str, list[str]] | None = None, **details: Any) -> None:
        unknown = set(details) - set(self.detail_fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no detail {', '.join(sorted(unknown))}")
        self.message = message or self.default_message()
        self.fields = fields or {}
        self.details = details
        super().__init__(self.message)

    @classmethod
    def default_message(cls) -> str:
        """Return the docstring's first line: an error that is raised without a message still says something."""
        lines = (cls.__doc__ or "").strip().splitlines()
        return lines[0] if lines else cls.code.replace("_", " ").capitalize() + "."

    def as_dict(self) -> dict[str, Any]:
        """Return `{"error": {"code", "message", "fields"?, "details"?}}`."""
        return error_body(self.code, self.message, fields=self.fields, details=self.details)


class IdempotencyKeyReused(QueueOpsError):
    """The idempotency key was used for other work."""

    code = "idempotency_key_reused"
    status = 422
    detail_fields = ("idempotency_key",)


class ForeignUser(QueueOpsError):
    """An end user acts for nobody else."""

    code = "foreign_user"
    status = 403


def error_body(
    code: str,
    message: str,
    *,
    fields: dict[str, list[str]] | None = None,
    details: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the one error shape; the API's exception handler uses it for errors that are not ours."""
    error: dict[str, Any] = {"code": code, "message": message}
    if fields and len(fields) > MAX_FIELDS_TOLD:
        details = {**(details or {}), "fields_left_out": len(fields) - MAX_FIELDS_TOLD}
        fields = dict(islice(fields.items(), MAX_FIELDS_TOLD))
    if fields:
        error["fields"] = fields
    if details:
        error["details"] = details
    return {"error": error}


def fields_of(error: ValidationError, prefix: str = "", *, known: Collection[str] = ()) -> dict[str, list[str]]:
    """
    Return what is wrong with each field, by its path: the `fields` of an error of ours.

    Args:
        known: The fields that exist, with those within them where it is a model's `model_fields`. For a field that
            does not exist, the message names the nearest of those beside it.
    """
    found: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        path = ".".join([prefix, *map(str, item["loc"])] if prefix else map(str, item["loc"]))
        told = item["msg"].removeprefix("Value error, ")
        *where, name = item["loc"] or ("",)
        if item["type"] == "extra_forbidden" and (there := _known_at(known, where)):
            meant = nearest(str(name), there) or f" There are: {', '.join(there)}."
            told = f"{told}.{meant}"
        found.setdefault(path, []).append(told)
    return found


def _known_at(known: Collection[str], where: list[int | str]) -> Collection[str]:
    """Return the fields of the model at a path; none where a path leads to no model."""
    for name in where:
        if isinstance(name, str):
            field = known.get(name) if isinstance(known, Mapping) else None
            kinds = (field.annotation, *get_args(field.annotation)) if isinstance(field, FieldInfo) else ()
            models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
            known = models[0].model_fields if models else ()
    return known
