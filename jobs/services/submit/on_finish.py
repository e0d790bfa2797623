"""The callback of a batch: a job that is stored with the batch and has the batch as its dependency."""

from __future__ import annotations

import json

from jobs.models import Batch, OnFailure
from queueops.core.errors import QueueOpsError

from .prepare import PreparedJob, Rules, prepare_job
from .spec import InvalidJob, JobSpec

# Fields that are refused. Times would count from the submission, not from the batch's end. The batch already decides
# what the callback waits for, and that it is made once.
NOT_OF_A_CALLBACK = (
    "scheduled_at",
    "delay_seconds",
    "expires_at",
    "complete_by",
    "idempotency_key",
    "unique_key",
    "unique_in",
    "if_pending",
    "debounce_seconds",
    "debounce_most_seconds",
    "after",
    "on_failure",
)
FIELD_OF = {"unknown_kind": ".kind", "payload_too_large": ".payload"}  # for errors that name no field


def prepare_callback(spec: JobSpec, batch: Batch, *, rules: Rules) -> PreparedJob:
    """
    Check the job that is to run when a batch has ended.

    Raises:
        InvalidJob and whatever `prepare_job` raises, each with the path of the field below `on_finish`.
    """
    if given := [name for name in NOT_OF_A_CALLBACK if name in spec.model_fields_set]:
        fault = "It begins when its batch has ended, once: leave this out."
        raise InvalidJob("The callback is not valid.", fields={f"on_finish.{name}": [fault] for name in given})
    told = json.dumps({"batch": str(batch.pk), "name": batch.name})
    try:
        prepared = prepare_job(spec, rules=rules, ended_batch=told)
    except QueueOpsError as error:
        error.fields = {f"on_finish.{path}": faults for path, faults in error.fields.items()} or {
            f"on_finish{FIELD_OF.get(error.code, '')}": [error.message]
        }
        raise
    waits = {"after": (batch.pk,), "on_failure": OnFailure.RUN}
    return prepared._replace(spec=prepared.spec.model_copy(update=waits))
