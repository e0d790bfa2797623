"""Maintenance windows: planned times in which work waits."""

from jobs.feature import Feature, Tab
from queueops.core.moved_rows import NUMBERED, PROJECT, Sort

OF_PROJECT = f"scope = 'project' AND key = {PROJECT}"

WINDOWS = Feature(
    package="jobs.features.windows",
    page="how-to/maintenance.md",
    addresses={
        "maintenance/": "api.WindowList",
        "maintenance/<uuid:pk>/": "api.WindowDetail",
        "maintenance/<uuid:pk>/end/": "api.EndWindow",
    },
    screens="admin",
    tabs=(Tab("Maintenance", "jobs_maintenancewindow", after="jobs_pauseswitch"),),
    viewer=("view_maintenancewindow",),
    operator=("add_maintenancewindow", "change_maintenancewindow", "delete_maintenancewindow"),
    duties=("windows.tend_windows",),
    due=(
        """
        EXISTS (SELECT FROM jobs_maintenancewindow AS planned
                 WHERE next_change_at <= {{now}}
                   AND NOT EXISTS (SELECT FROM tenancy_project
                                    WHERE planned.scope = 'project' AND id = planned.key AND move <> ''))""",
    ),
    moves=(
        Sort("maintenance windows", "jobs_maintenancewindow", OF_PROJECT),
        # Without its switch, an open window would hold nothing there until its next change: its end.
        Sort(
            "pauses of maintenance windows",
            "jobs_pauseswitch",
            f"window_id IN (SELECT id FROM jobs_maintenancewindow WHERE {OF_PROJECT})",  # noqa: S608 - put together from our own words
            NUMBERED,
            is_watched=True,
        ),
    ),
)
