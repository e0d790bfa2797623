"""The bodies and query parameters that the limiter's addresses take."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import Input

Reason = Annotated[str, StringConstraints(max_length=500)]
# Without `strict` Pydantic would accept the text "7" and truth values as numbers.
Number = Annotated[float, Field(strict=True)]


class Reasoned(Input):
    """Query parameters of requests that take something away."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True, pattern=NO_NUL)] = (
        Field(description="For the audit trail.")
    )
