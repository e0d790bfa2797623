"""Its record."""

from jobs.feature import Feature, Tab
from queueops.core.moved_rows import Sort

PLANTED = Feature(
    package="tests.support.planted_feature",
    page="how-to/schedules.md",
    addresses={"planted/": "everything.PlantedList"},
    screens="everything",
    tabs=(Tab("Planted", "jobs_planted", after="jobs_schedule"),),
    viewer=("view_planted",),
    operator=("steer_planted",),
    administrator=("change_planted",),
    duties=("everything.tend_planted", "everything.PlantedDuty"),
    rounds=("everything.PlantedRounds",),
    due=("EXISTS (SELECT FROM jobs_planted)",),
    watches=("everything.watch_planted",),
    retention=("everything.PLANTED_ROWS",),
    moves=(Sort("planted", "jobs_planted", is_watched=True), Sort("its jobs", "jobs_plantedjob", names_jobs=True)),
    stays={"jobs_plantedfigure": "figures: they are counted anew there"},
)
