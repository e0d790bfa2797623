"""Schedules: jobs that are submitted by the clock."""

from jobs.feature import Feature, SealedColumns, Tab
from queueops.core.moved_rows import Sort

SCHEDULES = Feature(
    package="jobs.features.schedules",
    page="how-to/schedules.md",
    addresses={
        "schedules/": "api.ScheduleList",
        "schedules/preview/": "api.PreviewSchedule",
        "schedules/<uuid:pk>/": "api.ScheduleDetail",
        "schedules/<uuid:pk>/fires/": "api.ScheduleFires",
        "schedules/<uuid:pk>/pause/": "api.PauseSchedule",
        "schedules/<uuid:pk>/resume/": "api.ResumeSchedule",
        "schedules/<uuid:pk>/run/": "api.RunSchedule",
    },
    screens="admin",
    tabs=(Tab("Schedules", "jobs_schedule", after="jobs_providerbatch"),),
    viewer=("view_schedule",),
    operator=("steer_schedule",),
    administrator=("add_schedule", "change_schedule", "delete_schedule"),
    rounds=("fire_schedules.ScheduleRounds",),
    watches=("watch.watch_schedules",),
    due=("EXISTS (SELECT FROM jobs_schedule WHERE next_fire_at <= {{now}})",),
    moves=(Sort("schedules", "jobs_schedule", is_watched=True), Sort("fires of schedules", "jobs_schedulefire")),
    retention=("fire_schedules.FIRES",),
    sealed=(SealedColumns("jobs_schedule", whole=("jobs",)),),
    of_user=("of_user.rows_of_user",),
)
