"""The roles' permissions for the queue; docs/reference/roles.md."""

from __future__ import annotations

SEEN = (
    "job",
    "batch",
    "batchpolicy",
    "deadletter",
    "bulkoperation",
    "retrypolicy",
    "agingrule",
    "executor",
    "servicebreaker",
    "pauseswitch",
    "pool",
    "providerbatch",
    "webhook",
    "webhookdelivery",
    "upload",
    "objective",
    "schedule",
    "maintenancewindow",
)

VIEWER = frozenset(f"jobs.view_{model}" for model in SEEN) | {"door.view_modelroute"}
OPERATOR = frozenset(
    {
        "jobs.cancel_job",
        "jobs.reschedule_job",
        "jobs.reprioritise_job",
        "jobs.pause_work",
        "jobs.add_maintenancewindow",
        "jobs.change_maintenancewindow",
        "jobs.delete_maintenancewindow",
        "jobs.steer_providerbatch",
        "jobs.steer_schedule",
        "jobs.steer_servicebreaker",
        "jobs.requeue_deadletter",
        "jobs.run_again",
        "jobs.discard_deadletter",
        "jobs.export_deadletter",
        "jobs.add_upload",
        "jobs.share_savedfilter",
        "jobs.change_bulkoperation",
    }
)
ADMINISTRATOR = frozenset(
    {
        "jobs.add_retrypolicy",
        "jobs.change_retrypolicy",
        "jobs.change_agingrule",
        "jobs.add_batchpolicy",
        "jobs.change_batchpolicy",
        "jobs.delete_batchpolicy",
        "jobs.add_pool",
        "jobs.change_pool",
        "jobs.delete_pool",
        "jobs.add_objective",
        "jobs.change_objective",
        "jobs.delete_objective",
        "jobs.add_schedule",
        "jobs.change_schedule",
        "jobs.delete_schedule",
        "jobs.add_webhook",
        "jobs.change_webhook",
        "door.add_modelroute",
        "door.change_modelroute",
        "door.delete_modelroute",
    }
)
