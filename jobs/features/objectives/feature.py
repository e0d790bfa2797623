"""Objectives: how many jobs are to be done in time, and how much of the allowed misses is used up."""

from jobs.feature import Feature, Tab
from queueops.core.moved_rows import NUMBERED, Sort

OBJECTIVES = Feature(
    package="jobs.features.objectives",
    page="how-to/objectives.md",
    addresses={"objectives/": "api.ObjectiveList"},
    screens="admin",
    tabs=(Tab("Objectives", "jobs_objective", after="ratelimits_alertroute"),),
    viewer=("view_objective",),
    administrator=("add_objective", "change_objective", "delete_objective"),
    watches=("watch.watch_objectives",),
    # The other installation counts an objective anew, from the jobs that move with it.
    moves=(Sort("objectives", "jobs_objective", leaves=NUMBERED | {"counts_from"}, is_watched=True),),
)
