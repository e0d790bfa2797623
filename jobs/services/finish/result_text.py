"""What a handler returned, as it is kept with its job."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core
from django.conf import settings

from jobs.classify import clean_json


def result_text(result: Any) -> str | None:
    """As JSON text; what is too large to keep is replaced by a note, because the call has succeeded."""
    if result is None:
        return None
    text = pydantic_core.to_json(result, inf_nan_mode="null")
    limit = settings.QUEUEOPS.max_payload_bytes
    if len(text) > limit:
        return json.dumps({"omitted": f"the result has {len(text)} bytes; at most {limit} are kept"})
    return clean_json(text.decode())
