"""Client of QueueOps."""

from queueops_client.async_producer import AsyncQueueOps
from queueops_client.errors import (
    ApiError,
    BadConfiguration,
    BatchRejected,
    ClientError,
    Conflict,
    IdempotencyKeyReused,
    InvalidRequest,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    QueueFull,
    QuotaExceeded,
    ServerError,
    TooManyJobs,
    TooManyRequests,
    Unreachable,
    WaitTimeout,
)
from queueops_client.producer import QueueOps
from queueops_client.records import (
    Batch,
    DeadLetter,
    Event,
    Job,
    Moved,
    Operation,
    Paused,
    Project,
    Result,
    SubmittedBatch,
)
from queueops_client.retry import Retry
from queueops_client.specs import JobSpec
from queueops_client.watching import Update

__all__ = [
    "ApiError",
    "AsyncQueueOps",
    "BadConfiguration",
    "Batch",
    "BatchRejected",
    "ClientError",
    "Conflict",
    "DeadLetter",
    "Event",
    "IdempotencyKeyReused",
    "InvalidRequest",
    "Job",
    "JobSpec",
    "Moved",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "Operation",
    "Paused",
    "Project",
    "QueueFull",
    "QueueOps",
    "QuotaExceeded",
    "Result",
    "Retry",
    "ServerError",
    "SubmittedBatch",
    "TooManyJobs",
    "TooManyRequests",
    "Unreachable",
    "Update",
    "WaitTimeout",
]
