"""Maintenance windows: planned times in which work waits."""

from jobs.feature import Feature, Tab
from queueops.core.moved_rows import PROJECT, Sort

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
    moves=(Sort("maintenance windows", "jobs_maintenancewindow", f"scope = 'project' AND key = {PROJECT}"),),
)
