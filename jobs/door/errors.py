"""Errors of the doors."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class BadDoorRequest(QueueOpsError):
    """The request is not what this address takes."""

    code = "invalid_request"
    status = 400


class KeysOnly(QueueOpsError):
    """The doors are for producers' keys: use one, or the pages of the admin."""

    code = "keys_only"
    status = 403


class ResultsGone(QueueOpsError):
    """Jobs of this batch were deleted when their time was over: what they answered is gone."""

    code = "results_gone"
    status = 410


class NoSuchObject(QueueOpsError):
    """There is no such object."""

    code = "no_such_object"
    status = 404


class RequestsRefused(QueueOpsError):
    """Requests of the batch are not valid, so none was accepted."""

    code = "requests_refused"
    status = 400


class NotAnsweredYet(QueueOpsError):
    """There is no answer yet. The call goes on: send it again, or ask for the answer later."""

    code = "not_answered_yet"
    status = 504


class NoModelRoute(QueueOpsError):
    """No route says where calls for this model go."""

    code = "model_not_found"
    status = 404


class BadModelRoute(QueueOpsError):
    """The route is not valid."""

    code = "bad_model_route"
    status = 422


class UnknownModelRoute(QueueOpsError):
    """The project has no such route."""

    code = "unknown_model_route"
    status = 404
    detail_fields = ("route_id",)
