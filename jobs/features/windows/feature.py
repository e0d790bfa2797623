"""Maintenance windows: planned times in which work waits."""

from jobs.feature import Feature, Tab

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
)
