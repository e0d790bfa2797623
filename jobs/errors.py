"""Errors for requests of operators that cannot be met."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class InvalidDelay(QueueOpsError):
    """The delay is negative or too long."""

    code = "invalid_delay"
    status = 422
    detail_fields = ("given_seconds", "limit_seconds")


class InvalidFilter(QueueOpsError):
    """The filter is not valid."""

    code = "invalid_filter"
    status = 422


class InvalidPace(QueueOpsError):
    """The pace or the failure rate of a bulk operation is out of range."""

    code = "invalid_pace"
    status = 422


class NeverRuns(QueueOpsError):
    """After the delay, jobs would have expired. Nothing was changed; `ids` names some of them."""

    code = "would_expire"
    status = 409
    detail_fields = ("ids",)


class OtherEpoch(QueueOpsError):
    """The cursor is of a log that is not this one: the database was restored since."""

    code = "other_epoch"
    status = 410


class UnknownBatch(QueueOpsError):
    """There is no such batch."""

    code = "unknown_batch"
    status = 404
    detail_fields = ("batch_id",)


class UnknownPauseTarget(QueueOpsError):
    """There is nothing of that name to pause."""

    code = "unknown_pause_target"
    status = 404
    detail_fields = ("scope", "key")


class UnknownBulkOperation(QueueOpsError):
    """There is no such bulk operation."""

    code = "unknown_bulk_operation"
    status = 404
    detail_fields = ("operation_id",)


class NotPaused(QueueOpsError):
    """Not everything is paused."""

    code = "not_paused"
    status = 409
