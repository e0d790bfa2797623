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
    ProjectMoved,
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
    Fire,
    Forecast,
    ForecastWay,
    Job,
    Moved,
    Operation,
    Paused,
    Project,
    Result,
    Schedule,
    SubmittedBatch,
)
from queueops_client.retry import Retry
from queueops_client.specs import JobSpec
from queueops_client.usage.async_tracker import AsyncUsageTracker
from queueops_client.usage.desk import Standing, Usage
from queueops_client.usage.errors import OutboxFailed, OutboxFull, QuotaUnavailable, TokensNotSet, TrackerClosed
from queueops_client.usage.flush import Flushed
from queueops_client.usage.policies import Policy
from queueops_client.usage.report import LeftIntent, RejectedRow, Report
from queueops_client.usage.tracker import UsageTracker
from queueops_client.watching import Update

__all__ = [
    "ApiError",
    "AsyncQueueOps",
    "AsyncUsageTracker",
    "BadConfiguration",
    "Batch",
    "BatchRejected",
    "ClientError",
    "Conflict",
    "DeadLetter",
    "Event",
    "Fire",
    "Flushed",
    "Forecast",
    "ForecastWay",
    "IdempotencyKeyReused",
    "InvalidRequest",
    "Job",
    "JobSpec",
    "LeftIntent",
    "Moved",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "Operation",
    "OutboxFailed",
    "OutboxFull",
    "Paused",
    "Policy",
    "Project",
    "ProjectMoved",
    "QueueFull",
    "QueueOps",
    "QuotaExceeded",
    "QuotaUnavailable",
    "RejectedRow",
    "Report",
    "Result",
    "Retry",
    "Schedule",
    "ServerError",
    "Standing",
    "SubmittedBatch",
    "TokensNotSet",
    "TooManyJobs",
    "TooManyRequests",
    "TrackerClosed",
    "Unreachable",
    "Update",
    "Usage",
    "UsageTracker",
    "WaitTimeout",
]
