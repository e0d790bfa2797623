"""A name for each request, in its log lines and its answer, so that a user's report can be found in the log."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from logging import getLogger

from django.http import HttpRequest, HttpResponseBase
from django.utils.http import http_date

from queueops.core.telemetry.logs import tell_of
from queueops.core.web.asking import being_answered
from queueops.core.web.error_forms import ANTHROPIC_DOOR

logger = getLogger(__name__)

HEADER = "X-Request-Id"
ANTHROPICS = "request-id"  # Anthropic's clients read no other; docs/reference/wire-facts.md
# A proxy's name for the request is kept if it has this form; other texts could forge a line or fill the log.
_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
SLOW_REQUEST_SECONDS = 2.0


class RequestLog:
    """Names each request and logs slow ones; Django logs errors, under the same name."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get(HEADER, "")
        name = given if _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex
        # The name outlives this call: Django logs errors after the last middleware has returned.
        tell_of("request", lambda: {"request": name})
        begun = time.monotonic()
        token = being_answered.set(request)
        try:
            response = self._get_response(request)
        finally:
            being_answered.reset(token)
        seconds = time.monotonic() - begun
        if seconds >= SLOW_REQUEST_SECONDS:
            logger.warning("%s %s took %.1f s", request.method, request.path, seconds)
        response.headers.setdefault(HEADER, name)  # a door's answer is named by its job, as official clients read it
        if request.path.startswith(ANTHROPIC_DOOR):
            response.headers.setdefault(ANTHROPICS, name)
        response.headers.setdefault("Date", http_date())  # daphne sends no Date, and clients correct their clocks by it
        return response
