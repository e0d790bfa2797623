"""The admin screen of executors."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString
from unfold.decorators import display

from jobs.models import Executor
from jobs.services.upkeep.health import health_of
from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.verbs import ReadOnlyMixin


@admin.register(Executor)
class ExecutorAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = (
        "process",
        "role",
        "serves",
        "health",
        "busy",
        "heartbeat",
        "loop_lag",
        "held",
        "leases_lost",
        "since",
    )
    empty_title = "No executor runs."
    empty_hint = "Start one with: manage.py qcluster."

    process = column("process", str)

    @admin.display(description="serves")
    def serves(self, executor: Executor) -> str:
        return f"pool {executor.pool}" if executor.pool else "all jobs"

    @display(description="health", label={"alive": "success", "draining": "warning", "silent": "danger"})  # type: ignore[untyped-decorator]
    def health(self, executor: Executor) -> str:
        return health_of(executor)

    @admin.display(description="in flight")
    def busy(self, executor: Executor) -> SafeString:
        percent = 100 * executor.in_flight / executor.slots if executor.slots else 0.0
        return formatting.bar(min(100.0, percent), f"{executor.in_flight} of {executor.slots}")

    heartbeat = time_column("last heartbeat", "heartbeat_at")

    @admin.display(description="loop lag")
    def loop_lag(self, executor: Executor) -> str:
        return f"{executor.loop_lag_ms:,.0f} ms"

    @admin.display(description="loop held")
    def held(self, executor: Executor) -> str:
        return f"{executor.loops_held:,}, last by {executor.loop_held_by}" if executor.loops_held else "0"

    since = time_column("started", "started_at")
