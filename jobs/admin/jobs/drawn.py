"""
Fields of a form, drawn from a JSON Schema.

The fields only turn typed text into JSON. The handler's own schema validates the JSON, as for every submission.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.utils import timezone
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

Schema = Mapping[str, Any]

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_ONE_LINE = re.compile(r"(^|_)(url|uri|id|name|header|endpoint|path)$")
_CODE = re.compile(r"`([^`]+)`")
_UPPER = frozenset({"id", "json", "url", "uri"})
_BOUNDS = {
    "minimum": "at least {:,}",
    "exclusiveMinimum": "more than {:,}",
    "maximum": "at most {:,}",
    "exclusiveMaximum": "less than {:,}",
    "minLength": "",
    "maxLength": "at most {:,} characters",
}


def inlined(schema: Any, defs: Schema, within: frozenset[str] = frozenset()) -> Any:
    """Return a schema with each `$ref` replaced by its definition; where a definition refers to itself, by `{}`."""
    if isinstance(schema, list):
        return [inlined(one, defs, within) for one in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {name: inlined(one, defs, within) for name, one in schema.items() if name not in ("$ref", "$defs", "title")}
    if "$ref" not in schema:
        return rest
    name = schema["$ref"].rpartition("/")[2]
    found = {} if name in within else inlined(defs.get(name, {}), defs, within | {name})
    return {**found, **rest}


def draw(
    name: str, schema: Schema, *, is_asked: bool = False, choices: Mapping[str, str] | None = None, value: Any = None
) -> DrawnField:
    """
    Return the field that draws a property best.

    Args:
        schema: The property's schema, inlined.
        is_asked: The field is marked as required.
        choices: Texts to choose from, and how each is shown, if the schema does not name them.
        value: The value that the field will show; a value that does not fit the field is shown as JSON.
    """
    branches = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(branches) == 1:
        schema = {**{key: said for key, said in schema.items() if key != "anyOf"}, **branches[0], "nullable": True}
    if choices is not None:
        schema = {**schema, "enum": list(choices), "shown": choices}
    sort = next((one for one in (_Choice, _YesNo, _Figure, _Lines, _Text) if one.suits(schema)), _Json)
    field = sort(name, schema, is_asked=is_asked)
    return field if value is None or field.shows(value) else _Json(name, schema, is_asked=is_asked)


def label_of(name: str) -> str:
    words = [word.upper() if word in _UPPER else word for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _told(schema: Schema, *facts: str) -> SafeString:
    """Return the help text of a field: the schema's description, bounds and default."""
    bounds = [words.format(schema[name]) for name, words in _BOUNDS.items() if words and name in schema]
    default = schema.get("default")
    sentences = [schema.get("description", ""), *facts, ", ".join(bounds).capitalize()]
    sentences += [f"Default: {default}"] if default not in (None, "", [], {}) else []
    return with_code(" ".join(one if one.endswith((".", "?")) else f"{one}." for one in sentences if one))


def with_code(text: str) -> SafeString:
    """Return a text as HTML that shows the parts in backticks as code."""
    return mark_safe(_CODE.sub(r"<code>\1</code>", conditional_escape(text)))  # noqa: S308 - escaped first


class DrawnField(forms.CharField):
    """
    A field whose clean value is JSON text; None: the field is left out.

    Attributes:
        is_asked: The field is marked as required. The schema checks that a value is given.
        schema_text: The schema of a JSON field, for people; empty for fields that need no such text.
    """

    schema_text = ""

    def __init__(self, name: str, schema: Schema, *, is_asked: bool, **options: Any) -> None:
        self.schema, self.is_asked = schema, is_asked
        super().__init__(label=label_of(name), required=False, strip=False, **{"help_text": _told(schema), **options})

    @classmethod
    def suits(cls, schema: Schema) -> bool:
        return True

    def shows(self, value: Any) -> bool:
        """Whether the field can show a value, and read the same value back."""
        return True

    def shown(self, value: Any) -> Any:
        """Return the text of a value."""
        return "" if value is None else str(value)

    def typed(self, raw: Any) -> str:
        # Browsers send a line end as two characters.
        return str(raw or "").replace("\r\n", "\n")

    def read(self, typed: str) -> str | None:
        """
        Raises:
            ValidationError
        """
        return json.dumps(typed, ensure_ascii=False) if typed else None

    def clean(self, value: Any) -> str | None:
        return self.read(self.typed(super().clean(value)))


class _Text(DrawnField):
    def __init__(self, name: str, schema: Schema, *, is_asked: bool) -> None:
        is_line = "pattern" in schema or "format" in schema or "maxLength" in schema or _ONE_LINE.search(name)
        line = UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"})
        widget = line if is_line else UnfoldAdminTextareaWidget(attrs={"rows": 3})
        super().__init__(name, schema, is_asked=is_asked, widget=widget)

    @classmethod
    def suits(cls, schema: Schema) -> bool:
        return schema.get("type") == "string"

    def shows(self, value: Any) -> bool:
        return isinstance(value, str) and (isinstance(self.widget, forms.Textarea) or "\n" not in value)


class _Figure(DrawnField):
    def __init__(self, name: str, schema: Schema, *, is_asked: bool) -> None:
        # Not type=number: a browser drops text that is not a number, and the form could not say what is wrong.
        mode = "numeric" if schema["type"] == "integer" else "decimal"
        widget = UnfoldAdminTextInputWidget(attrs={"inputmode": mode, "autocomplete": "off"})
        super().__init__(name, schema, is_asked=is_asked, widget=widget)

    @classmethod
    def suits(cls, schema: Schema) -> bool:
        return schema.get("type") in ("integer", "number")

    def shows(self, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def shown(self, value: Any) -> Any:
        return "" if value is None else json.dumps(value)

    def read(self, typed: str) -> str | None:
        number = typed.strip()
        if number and not _NUMBER.fullmatch(number):
            raise forms.ValidationError("Write a number, such as 5 or 0.5.")
        return number or None


class _Choice(DrawnField):
    NAMES: ClassVar = {True: "yes", False: "no"}

    def __init__(self, name: str, schema: Schema, *, is_asked: bool) -> None:
        options = schema.get("enum", [schema["const"]] if "const" in schema else [True, False])
        self.texts = {self.shown(one): json.dumps(one, ensure_ascii=False) for one in options if one is not None}
        default = schema.get("default")
        blank = "choose…" if is_asked else "not given" if default is None else f"{self.shown(default)} (default)"
        names = schema.get("shown", {})
        offered = [("", blank), *((one, names.get(one, one)) for one in self.texts if is_asked or one != default)]
        facts = () if self.texts else ("There is none to choose from yet.",)
        help_text = _told({"description": schema.get("description", "")}, *facts)
        widget = UnfoldAdminSelectWidget(choices=offered)
        super().__init__(name, schema, is_asked=is_asked, widget=widget, help_text=help_text)

    @classmethod
    def suits(cls, schema: Schema) -> bool:
        return "enum" in schema or "const" in schema or (schema.get("type") == "boolean" and not _YesNo.suits(schema))

    def shows(self, value: Any) -> bool:
        return self.shown(value) in self.texts

    def shown(self, value: Any) -> Any:
        return "" if value is None else self.NAMES[value] if isinstance(value, bool) else str(value)

    def prepare_value(self, value: Any) -> Any:
        # The empty choice stands for the default.
        return "" if not self.is_asked and value == self.shown(self.schema.get("default")) else value

    def read(self, typed: str) -> str | None:
        if typed and typed not in self.texts:
            raise forms.ValidationError(f"{typed[:100]!r} is none of the choices.")
        return self.texts[typed] if typed else None


class _YesNo(DrawnField):
    def __init__(self, name: str, schema: Schema, *, is_asked: bool) -> None:
        help_text = _told({key: said for key, said in schema.items() if key != "default"})
        super().__init__(
            name, schema, is_asked=False, widget=UnfoldBooleanSwitchWidget(), help_text=help_text,
            initial=schema["default"],
        )  # fmt: skip

    @classmethod
    def suits(cls, schema: Schema) -> bool:
        return schema.get("type") == "boolean" and isinstance(schema.get("default"), bool)

    def shows(self, value: Any) -> bool:
        return isinstance(value, bool)

    def shown(self, value: Any) -> Any:
        return value

    def typed(self, raw: Any) -> str:
        return "true" if raw in (True, "True", "true", "on") else "false"

    def read(self, typed: str) -> str | None:
        return None if typed == json.dumps(self.schema["default"]) else typed


class _Lines(DrawnField):
    """A list of texts, one a line."""

    def __init__(self, name: str, schema: Schema, *, is_asked: bool) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 2, "spellcheck": "false"})
        super().__init__(name, schema, is_asked=is_asked, widget=widget, help_text=_told(schema, "One a line."))

    @classmethod
    def suits(cls, schema: Schema) -> bool:
        return schema.get("type") == "array" and (schema.get("items") or {}).get("type") == "string"

    def shows(self, value: Any) -> bool:
        return isinstance(value, list | tuple) and all(
            isinstance(one, str) and one == one.strip() and one and "\n" not in one for one in value
        )

    def shown(self, value: Any) -> Any:
        return "\n".join(value or ())

    def read(self, typed: str) -> str | None:
        lines = [line.strip() for line in typed.split("\n") if line.strip()]
        return json.dumps(lines, ensure_ascii=False) if lines else None


class _Json(DrawnField):
    def __init__(self, name: str, schema: Schema, *, is_asked: bool, label: str | None = None) -> None:
        self.is_object = schema.get("type") == "object"
        sign = {"object": "{…}", "array": "[…]"}.get(schema.get("type", ""), "")
        attrs = {"rows": 4, "class": "qo-code", "spellcheck": "false", "autocomplete": "off", "placeholder": sign}
        widget = UnfoldAdminTextareaWidget(attrs=attrs)
        said = {**schema, "default": json.dumps(schema.get("default")) if schema.get("default") else None}
        super().__init__(name, schema, is_asked=is_asked, widget=widget, help_text=_told(said, "As JSON."))
        self.label = label or self.label
        told = ("description", "default", "nullable", "type")
        rules = {key: one for key, one in schema.items() if key not in told and one not in ({}, True)}
        self.schema_text = json.dumps({"type": schema.get("type"), **rules}, indent=2) if rules else ""

    def shown(self, value: Any) -> Any:
        return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)

    def read(self, typed: str) -> str | None:
        text = typed.strip()
        try:
            value = json.loads(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(f"Not JSON: {error}") from None
        except RecursionError:
            raise forms.ValidationError("It is nested too deep.") from None
        if self.is_object and value is not None and not isinstance(value, dict):
            raise forms.ValidationError("Write a JSON object: {…}.")
        return text or None


class JsonObjectField(_Json):
    """A JSON object with no schema of its own."""

    def __init__(self, label: str, help_text: str) -> None:
        super().__init__("", {"type": "object", "description": help_text}, is_asked=False, label=label)


class MomentField(DrawnField):
    """A time in the installation's zone."""

    def __init__(self, name: str, schema: Schema) -> None:
        widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})
        told = _told({"description": schema.get("description", "")}, f"In {settings.TIME_ZONE}.")
        super().__init__(name, schema, is_asked=False, widget=widget, help_text=told)

    def read(self, typed: str) -> str | None:
        if not typed:
            return None
        try:
            return json.dumps(timezone.make_aware(datetime.fromisoformat(typed)).isoformat())
        except (ValueError, OverflowError):
            raise forms.ValidationError("Write a time, such as 2030-01-31T08:00.") from None
