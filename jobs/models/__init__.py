"""The queue's records. migrations/ adds partitions, the guard of the states and storage settings."""

from .dead_letter import DeadLetter, Resolution
from .job import WHOLE_PROJECT, Batch, Job, JobCount, JobEvent, new_id
from .policies import AgingRule, Jitter, RetryPolicy
from .requests import AuditEntry, BulkOperation, IdempotencyRecord, Webhook, WebhookDelivery
from .running import DutyLease, Executor, PauseSwitch, ServiceBreaker

__all__ = [
    "WHOLE_PROJECT",
    "AgingRule",
    "AuditEntry",
    "Batch",
    "BulkOperation",
    "DeadLetter",
    "DutyLease",
    "Executor",
    "IdempotencyRecord",
    "Jitter",
    "Job",
    "JobCount",
    "JobEvent",
    "PauseSwitch",
    "Resolution",
    "RetryPolicy",
    "ServiceBreaker",
    "Webhook",
    "WebhookDelivery",
    "new_id",
]
