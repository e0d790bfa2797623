"""The roles' permissions for the queue; docs/reference/roles.md."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from jobs.features import FEATURES

SEEN = (
    "job",
    "batch",
    "deadletter",
    "bulkoperation",
    "retrypolicy",
    "agingrule",
    "executor",
    "pauseswitch",
)


def _of_features(named: Iterable[tuple[str, ...]]) -> frozenset[str]:
    return frozenset(f"jobs.{name}" for name in chain.from_iterable(named))


VIEWER = (
    frozenset(f"jobs.view_{model}" for model in SEEN)
    | {"door.view_modelroute"}
    | _of_features(one.viewer for one in FEATURES)
)
OPERATOR = frozenset(
    {
        "jobs.cancel_job",
        "jobs.reschedule_job",
        "jobs.reprioritise_job",
        "jobs.pause_work",
        "jobs.requeue_deadletter",
        "jobs.run_again",
        "jobs.discard_deadletter",
        "jobs.export_deadletter",
        "jobs.change_bulkoperation",
    }
) | _of_features(one.operator for one in FEATURES)
ADMINISTRATOR = frozenset(
    {
        "jobs.add_retrypolicy",
        "jobs.change_retrypolicy",
        "jobs.change_agingrule",
        "door.add_modelroute",
        "door.change_modelroute",
        "door.delete_modelroute",
    }
) | _of_features(one.administrator for one in FEATURES)
