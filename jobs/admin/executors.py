"""Who carries jobs out, and which services do not answer."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import display

from jobs.models import Executor, ServiceBreaker
from jobs.services.health import health_of

from . import showing
from .masking import masked_text
from .verbs import ReadOnlyMixin, VerbsMixin


@admin.register(Executor)
class ExecutorAdmin(ReadOnlyMixin, VerbsMixin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    list_display = ("process", "role", "health", "busy", "heartbeat", "loop_lag", "leases_lost", "since")
    empty_title = "No executor runs."
    empty_hint = "Start one with: manage.py qcluster."
    list_fullwidth = True
    show_full_result_count = False

    @admin.display(description="process")
    def process(self, executor: Executor) -> str:
        return str(executor)

    @display(description="health", label={"alive": "success", "draining": "warning", "silent": "danger"})  # type: ignore[untyped-decorator]
    def health(self, executor: Executor) -> str:
        return health_of(executor)

    @admin.display(description="in flight")
    def busy(self, executor: Executor) -> SafeString:
        percent = 100 * executor.in_flight / executor.slots if executor.slots else 0.0
        return showing.bar(min(100.0, percent), f"{executor.in_flight} of {executor.slots}")

    @admin.display(description="last heartbeat")
    def heartbeat(self, executor: Executor) -> SafeString | str:
        return showing.ago(executor.heartbeat_at)

    @admin.display(description="loop lag")
    def loop_lag(self, executor: Executor) -> str:
        return f"{executor.loop_lag_ms:,.0f} ms"

    @admin.display(description="started")
    def since(self, executor: Executor) -> SafeString | str:
        return showing.ago(executor.started_at)


@admin.register(ServiceBreaker)
class ServiceBreakerAdmin(ReadOnlyMixin, VerbsMixin, ModelAdmin):  # type: ignore[misc]
    list_display = ("service", "health", "failures", "open_since", "next_probe", "probes", "last_error_shown")
    empty_title = "Every service answers."
    empty_hint = "A service that stops answering appears here; its work waits unharmed."
    exclude = ("last_error",)
    readonly_fields = ("last_error_shown",)
    list_fullwidth = True

    @display(description="state", label={"answers": "success", "does not answer": "danger"})  # type: ignore[untyped-decorator]
    def health(self, breaker: ServiceBreaker) -> str:
        return "does not answer" if breaker.opened_at else "answers"

    @admin.display(description="silent since")
    def open_since(self, breaker: ServiceBreaker) -> SafeString | str:
        return showing.ago(breaker.opened_at)

    @admin.display(description="next probe")
    def next_probe(self, breaker: ServiceBreaker) -> SafeString | str:
        return showing.ago(breaker.next_probe_at)

    @admin.display(description="last error")
    def last_error_shown(self, breaker: ServiceBreaker) -> str:
        return masked_text(breaker.last_error)[:200]
