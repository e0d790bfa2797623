"""JSON Schemas that producers give: whether one is sound, and whether an answer fits it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft202012Validator, extend
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_SCHEMA_BYTES = 100_000
MAX_FAULT = 300

MAX_REFERENCES = 20_000  # followed for one answer: a chain of references that each name the next twice would take years
_followed: ContextVar[int] = ContextVar("_followed")


def _leave(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check nothing: a producer's pattern could keep a worker's process busy for hours. The provider checks it."""
    return iter(())


def _follow(keyword: str) -> Callable[..., Iterator[ValidationError]]:
    follow = Draft202012Validator.VALIDATORS[keyword]

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _followed.set(_followed.get() + 1)
        if _followed.get() > MAX_REFERENCES:
            raise Unfit(f"its schema follows more than {MAX_REFERENCES:,} references")
        yield from follow(validator, value, instance, schema) or ()

    return counted


_Validator = extend(
    Draft202012Validator,
    {"pattern": _leave, "patternProperties": _leave}
    | {keyword: _follow(keyword) for keyword in ("$ref", "$dynamicRef")},
)
_NOTHING_REMOTE: Registry[Any] = Registry()  # the default registry would fetch the document that a $ref names


class Unfit(ValueError):
    """An answer is no JSON, or does not fit its schema."""


def check_schema(schema: dict[str, Any]) -> None:
    """
    Raises:
        ValueError: The schema is not valid by draft 2020-12, too large, or refers to a part that it does not have.
    """
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA_BYTES:
        raise ValueError(f"a schema has at most {MAX_SCHEMA_BYTES:,} bytes")
    if fault := _fault_of(text):
        raise ValueError(fault)


@lru_cache(maxsize=64)  # a check takes milliseconds, and thousands of jobs may have the same schema
def _fault_of(text: str) -> str:
    """Say what is wrong with a schema; empty: nothing."""
    schema = json.loads(text)
    try:
        Draft202012Validator.check_schema(schema)
        return next(_lost_references(schema, schema), "")
    except SchemaError as error:
        return f"schema{error.json_path.removeprefix('$')}: {error.message[:MAX_FAULT]}"
    except RecursionError:
        return "the schema is nested too deeply"


def read_fitting(text: str, schema: dict[str, Any]) -> Any:
    """
    Parse the JSON text of an answer, and check that it fits the schema.

    Raises:
        Unfit: It is no JSON, or does not fit the schema.
    """
    try:
        found = json.loads(_bare(text))
        _followed.set(0)
        fault = best_match(_Validator(schema, registry=_NOTHING_REMOTE).iter_errors(found))
    except Unfit:
        raise
    except (ValueError, RecursionError):
        raise Unfit("the answer is no JSON") from None
    except Unresolvable as error:
        raise Unfit(f"the schema names what it does not have: {error.ref}") from None
    if isinstance(fault, ValidationError):
        raise Unfit(f"{fault.json_path}: {fault.message[:MAX_FAULT]}")
    return found


def _bare(text: str) -> str:
    """The text without thoughts in the tags of models such as DeepSeek R1 and Qwen, and without a fence of Markdown."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[", '"')):  # a server may keep the first tag to itself
        stripped = stripped.rpartition("</think>")[2].strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") : -3]
    return stripped


def _lost_references(schema: Any, value: Any) -> Iterator[str]:
    """Name the references to other documents, and those to parts that the schema does not have."""
    if isinstance(value, list):
        for one in value:
            yield from _lost_references(schema, one)
    elif isinstance(value, dict):
        reference = value.get("$ref", value.get("$dynamicRef"))
        if isinstance(reference, str) and not reference.startswith("#"):
            yield f"schema: $ref {reference[:100]!r} is in another document; only those that begin with # are"
        elif isinstance(reference, str) and reference.startswith("#/") and not _has(schema, reference):
            yield f"schema: $ref {reference[:100]!r} names what the schema does not have"
        for one in value.values():
            yield from _lost_references(schema, one)


def _has(schema: Any, pointer: str) -> bool:
    """Whether a document has the part that a JSON pointer names (RFC 6901)."""
    found = schema
    for step in unquote(pointer).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = dict(enumerate(found)).get(int(name)) if name.isdecimal() else None
        else:
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            return False
    return True
