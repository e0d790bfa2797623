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


class BadPool(QueueOpsError):
    """A pool's name or lists are not valid, or there is none of the name."""

    code = "bad_pool"
    status = 422


class PoolInUse(QueueOpsError):
    """Live clusters serve the pool."""

    code = "pool_in_use"
    status = 409
    detail_fields = ("executors",)


class BadObjective(QueueOpsError):
    """A figure of an objective is not valid, or there is none of that id."""

    code = "bad_objective"
    status = 422


class BadWindow(QueueOpsError):
    """A maintenance window is not valid."""

    code = "bad_window"
    status = 422


class UnknownWindow(QueueOpsError):
    """There is no such maintenance window."""

    code = "unknown_window"
    status = 404
    detail_fields = ("window_id",)


class BadSchedule(QueueOpsError):
    """A schedule or a job of it is not valid."""

    code = "bad_schedule"
    status = 422


class UnknownSchedule(QueueOpsError):
    """There is no such schedule."""

    code = "unknown_schedule"
    status = 404
    detail_fields = ("schedule_id",)


class BadWebhook(QueueOpsError):
    """A webhook, or its filter of jobs, is not valid."""

    code = "bad_webhook"
    status = 422


class ReceiverIsOff(QueueOpsError):
    """It is switched off: switch it on first, or its messages would be left out."""

    code = "receiver_is_off"
    status = 409


class UnknownWebhook(QueueOpsError):
    """There is no such webhook."""

    code = "unknown_webhook"
    status = 404
    detail_fields = ("webhook_id",)


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


class UnknownUpload(QueueOpsError):
    """There is no such upload."""

    code = "unknown_upload"
    status = 404
    detail_fields = ("upload_id",)


class NotPaused(QueueOpsError):
    """Not everything is paused."""

    code = "not_paused"
    status = 409
