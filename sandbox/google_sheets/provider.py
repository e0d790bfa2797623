"""Google Sheets v4: a call's caller, its cost, and its refusals. routes.py does the work."""

from typing import Literal

from aiohttp import web

from sandbox.envelopes import ApiError, compress, google_error
from sandbox.gate import TOO_MANY_REQUESTS, UNAVAILABLE, Fate
from sandbox.google_sheets import errors, routes
from sandbox.knobs.settings import Knobs
from sandbox.provider import Arrival, CallIdentity, bearer_token, caller_of
from sandbox.quotas.book import Quota, QuotaCost
from sandbox.state import ARRIVAL

NAME = "google_sheets"


class GoogleSheets:
    name = NAME

    def add_routes(self, app: web.Application) -> None:
        routes.add_routes(app)

    async def arrive(self, request: web.Request, knobs: Knobs) -> Arrival:
        token = bearer_token(request)
        if token is None:
            raise google_error(401, errors.UNAUTHENTICATED)
        if request.match_info.http_exception is not None:
            return Arrival(is_write=False)
        await request.read()
        identity = caller_of(token)
        caller = CallIdentity(identity.project, request.query.get("quotaUser") or identity.user)
        kind: Literal["read", "write"] = "read" if request.method == "GET" else "write"
        return Arrival(
            is_write=kind == "write",
            caller=caller,
            quota_kind=kind,
            charges=_charges(kind, caller, knobs),
            rejected_calls_count=knobs.google_sheets.rejected_calls_count,
        )

    def refusal(self, request: web.Request, fate: Fate, knobs: Knobs) -> ApiError:
        arrival = request.get(ARRIVAL)
        if fate.status == TOO_MANY_REQUESTS and arrival is not None and arrival.caller is not None:
            charges = [violation.charge for violation in fate.violations] or list(arrival.charges)
            if charges:
                return errors.too_many_requests(charges[-1].quota, arrival.caller, knobs, fate.dice)
        status = fate.status or UNAVAILABLE
        return self.error(status, errors.MESSAGES.get(status, f"Refused by the sandbox ({fate.cause})."))

    def error(self, status: int, message: str) -> ApiError:
        return google_error(status, message)

    def finish(self, request: web.Request, response: web.StreamResponse, knobs: Knobs) -> None:
        compress(request, response)


def _charges(kind: Literal["read", "write"], caller: CallIdentity, knobs: Knobs) -> list[QuotaCost]:
    sheets = knobs.google_sheets
    project = (("project", caller.project),)
    user = (*project, ("user", caller.user))
    if kind == "read":
        named = [
            ("ReadRequestsPerMinutePerProject", sheets.reads_per_project, project),
            ("ReadRequestsPerMinutePerUser", sheets.reads_per_user, user),
        ]
    else:
        named = [
            (
                "WriteRequestsPerMinutePerProject",
                sheets.writes_of_projects.get(caller.project, sheets.writes_per_project),
                project,
            ),
            ("WriteRequestsPerMinutePerUser", sheets.writes_per_user, user),
        ]
    rule = sheets.rule()
    return [
        QuotaCost(Quota(NAME, name, "requests", capacity, rule), key)
        for name, capacity, key in named
        if capacity is not None
    ]
