"""The queue's records. migrations/ adds partitions, the guard of the states and storage settings."""

from jobs.features.archive.models import RestoredJob
from jobs.features.batch_lane.models import (
    MAX_DEADLINE_HOURS,
    SEARCHED_BACK,
    BatchPace,
    BatchPolicy,
    BatchSearch,
    ProviderBatch,
    ProviderBatchLine,
    Way,
)
from jobs.features.budget_holds.models import BudgetWait
from jobs.features.dependencies.models import Dependency, OnFailure
from jobs.features.flow.models import BACKLOG, SINCE_EVER, DecisionTotal, FlowCursor, FlowSample
from jobs.features.objectives.models import Objective, ObjectiveSample
from jobs.features.outages.models import ServiceBreaker
from jobs.features.pools.models import POOLED, Pool, PoolSweep
from jobs.features.refused_calls.models import RefusedCalls
from jobs.features.results.models import ResultStoreTotals
from jobs.features.saved_filters.models import SavedFilter
from jobs.features.schedules.models import Schedule, ScheduleFire
from jobs.features.uploads.models import Upload
from jobs.features.webhooks.models import Webhook, WebhookDelivery, WebhookJob
from jobs.features.windows.models import MaintenanceWindow
from queueops.core.sql import define_fragments

from .dead_letter import DeadLetter, Resolution
from .epoch import Epoch
from .fragments import written_fragments
from .job import WHOLE_PROJECT, Batch, Job, JobCount, JobEvent, new_id
from .policies import AgingRule, Jitter, RetryPolicy
from .requests import BulkOperation, CanaryState, IdempotencyRecord
from .running import DutyLease, Executor, PauseSwitch
from .tag import Tag

__all__ = [
    "BACKLOG",
    "MAX_DEADLINE_HOURS",
    "POOLED",
    "SEARCHED_BACK",
    "SINCE_EVER",
    "WHOLE_PROJECT",
    "AgingRule",
    "Batch",
    "BatchPace",
    "BatchPolicy",
    "BatchSearch",
    "BudgetWait",
    "BulkOperation",
    "CanaryState",
    "DeadLetter",
    "DecisionTotal",
    "Dependency",
    "DutyLease",
    "Epoch",
    "Executor",
    "FlowCursor",
    "FlowSample",
    "IdempotencyRecord",
    "Jitter",
    "Job",
    "JobCount",
    "JobEvent",
    "MaintenanceWindow",
    "Objective",
    "ObjectiveSample",
    "OnFailure",
    "PauseSwitch",
    "Pool",
    "PoolSweep",
    "ProviderBatch",
    "ProviderBatchLine",
    "RefusedCalls",
    "Resolution",
    "RestoredJob",
    "ResultStoreTotals",
    "RetryPolicy",
    "SavedFilter",
    "Schedule",
    "ScheduleFire",
    "ServiceBreaker",
    "Tag",
    "Upload",
    "Way",
    "Webhook",
    "WebhookDelivery",
    "WebhookJob",
    "new_id",
]

define_fragments("jobs", written_fragments())
