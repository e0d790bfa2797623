"""Measures the input of a request in a provider's own form: its texts, tokens, pictures and other parts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PICTURES = frozenset({"image_url", "input_image", "image"})
_OTHERS = frozenset(
    {"file", "input_file", "document", "input_audio", "audio", "input_video", "video", "container_upload"}
)
_DATA = ("inlineData", "inline_data", "fileData", "file_data")
# These members are sent beside the texts, and count as a whole, with the names of their fields.
_WHOLE = frozenset({"tools", "functions", "response_format", "output_config", "generationConfig", "generation_config"})
# These members bring input that the provider stores: its size is not known here.
_KEPT_THERE = frozenset(
    {"previous_response_id", "conversation", "prompt", "cachedContent", "cached_content", "container"}
)
_TOOLS_OF_PRODUCERS = frozenset({"function", "custom"})
_FUNCTIONS = frozenset({"functionDeclarations", "function_declarations"})  # Gemini's tools have no type


@dataclass(slots=True)
class MeasuredBody:
    """
    Attributes:
        text_bytes: The size of the texts as UTF-8.
        tokens: How many tokens are given by their numbers, not as text.
        pictures: How many there are.
        is_known: Whether all input is counted; False: the size of some part is not known.
    """

    text_bytes: int = 0
    tokens: int = 0
    pictures: int = 0
    is_known: bool = True

    def take(self, value: Any) -> None:
        if isinstance(value, str):
            self.text_bytes += len(value.encode(errors="replace"))
        elif isinstance(value, list):
            if value and all(type(one) is int for one in value):
                self.tokens += len(value)
                return
            for one in value:
                self.take(one)
        elif isinstance(value, dict) and not self._is_no_text(value):
            for name, one in value.items():
                if name != "type":
                    self.take(one)

    def _is_no_text(self, value: Mapping[str, Any]) -> bool:
        """Whether a value is a picture, or a thing of unknown size, and not text. Counts a picture, notes the other."""
        data = next((value[name] for name in _DATA if isinstance(value.get(name), dict)), None)
        kind = str(value.get("type") if data is None else data.get("mimeType") or data.get("mime_type"))
        if kind in _PICTURES if data is None else kind.startswith("image/"):
            self.pictures += 1
            return True
        if data is not None or kind in _OTHERS:
            self.is_known = False
            return True
        return False


def measure(body: Mapping[str, Any]) -> MeasuredBody:
    """Count a body's input."""
    found = MeasuredBody()
    for name, value in body.items():
        if name in _WHOLE:
            found.text_bytes += len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
        elif name != "model":
            found.take(value)
        if name in _KEPT_THERE and value is not None:
            found.is_known = False
    found.is_known &= not bring_input(body.get("tools"))
    return found


def bring_input(tools: Any) -> bool:
    """
    Whether any tool is of the provider's own, such as a search: it brings input that it finds, and may have a price.
    """
    return any(_brings_input(tool) for tool in (tools if isinstance(tools, list) else ()) if isinstance(tool, dict))


def _brings_input(tool: Mapping[str, Any]) -> bool:
    kind = tool.get("type")
    if kind is not None:
        return kind not in _TOOLS_OF_PRODUCERS
    return "name" not in tool and not tool.keys() <= _FUNCTIONS


def member_at(body: Any, path: tuple[str, ...]) -> Any:
    """The value at a place of a body; None: there is none."""
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def is_deeper(value: Any, levels: int) -> bool:
    """Whether more than so many lists and objects are nested in one another."""
    inner = [value]
    for _ in range(levels + 1):
        nested = [one for one in inner if isinstance(one, dict | list)]
        inner = [member for one in nested for member in (one.values() if isinstance(one, dict) else one)]
    return bool(nested)
