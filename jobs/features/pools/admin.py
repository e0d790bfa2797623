"""The admin screen of pools: which jobs a pool takes, which clusters serve it, and how many of its jobs wait."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextInputWidget

from jobs.features.pools import pools
from jobs.features.pools.figures import PoolDepth, pool_depths
from jobs.features.pools.models import WORD
from jobs.models import Pool
from queueops.core.errors import QueueOpsError
from queueops.core.values.numbers import numbered
from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.forms import CheckedForm
from queueops.screens.verbs import actor_of

_depth = TypedAttribute[PoolDepth | None]("depth")


class WordsField(forms.CharField):
    """Words with commas between them; the error tells what is wrong with the first invalid word."""

    widget = UnfoldAdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        words = value if isinstance(value, list) else (super().to_python(value) or "").split(",")
        return [stripped for word in words if (stripped := word.strip())]

    def validate(self, value: Any) -> None:
        for word in value:
            WORD(word)


def _words(name: str) -> WordsField:
    field: Any = Pool._meta.get_field(name)  # noqa: SLF001 - documented
    return WordsField(required=False, help_text=field.help_text)


class PoolForm(CheckedForm):
    services, kinds, projects = map(_words, pools.LISTS)

    def check_row(self) -> None:
        try:
            pools.check_lists(self.instance)
        except forms.ValidationError as error:
            self.add_error(None, error)


@admin.register(Pool)
class PoolAdmin(ServiceFormAdmin):
    form = PoolForm
    list_display = ("name", "serves", "served_by", "ready", "parked", "running", "oldest", "place")
    list_before_template = "admin/jobs/pool/explained.html"
    actions = None  # deleted one by one: each must be checked for a live cluster that serves it
    fixed_fields = ("name",)  # a cluster is started with its pool's name
    empty_title = "There are no pools."
    empty_hint = "Every cluster carries out all jobs. Add a pool to set clusters aside for some of them."
    fieldsets = (
        (None, {"fields": ("name", "place")}),
        (
            "What it serves",
            {
                "fields": ("services", "kinds", "projects"),
                "description": "A job belongs to the pool if each list that is not empty names it. Waiting jobs follow "
                "a change within seconds, a million of them within minutes; running ones go on.",
            },
        ),
    )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        depths = {depth.name: depth for depth in pool_depths()}
        for pool in changelist.result_list:
            _depth.set(pool, depths.get(pool.pk))
        changelist.poolless = depths.get("")
        return changelist

    def save_model(self, request: HttpRequest, obj: Pool, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        lists = {words: getattr(obj, words) for words in pools.LISTS}
        pools.save_pool(obj.name, place=obj.place, actor=actor_of(request), **lists)
        for service in pools.unheard_of(obj.services):
            words = f"Nothing here calls a service {service} yet: no handler, limit or job has that name."
            messages.warning(request, words)

    def delete_model(self, request: HttpRequest, obj: Pool) -> None:
        pools.delete_pool(obj.pk, actor=actor_of(request))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            response: HttpResponse = super().delete_view(request, object_id, extra_context)
        except QueueOpsError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(reverse("admin:jobs_pool_changelist"))
        return response

    @admin.display(description="serves")
    def serves(self, pool: Pool) -> str:
        return "; ".join(f"{words}: {', '.join(given)}" for words in pools.LISTS if (given := getattr(pool, words)))

    @admin.display(description="served by")
    def served_by(self, pool: Pool) -> SafeString | str:
        depth = _depth.find(pool)
        if depth is None:
            return formatting.NOTHING
        if depth.executors:
            address = f"{reverse('admin:jobs_executor_changelist')}?pool={pool.pk}"
            return format_html(
                '<a class="qo-link" href="{}">{} of {}</a>',
                address,
                numbered(depth.executors, "executor"),
                numbered(depth.clusters, "cluster"),
            )
        if depth.is_served:
            return formatting.badge("grey", "group_work", "clusters of all jobs")
        return formatting.badge("red" if depth.since else "amber", "error", "no cluster")

    @admin.display(description="ready")
    def ready(self, pool: Pool) -> str:
        depth = _depth.find(pool)
        return f"{depth.ready:,}{' or more' * depth.is_least}" if depth else formatting.NOTHING

    @admin.display(description="wait for a limit")
    def parked(self, pool: Pool) -> str:
        depth = _depth.find(pool)
        return f"{depth.parked:,}" if depth else formatting.NOTHING

    @admin.display(description="running")
    def running(self, pool: Pool) -> str:
        depth = _depth.find(pool)
        return f"{depth.running:,}" if depth else formatting.NOTHING

    @admin.display(description="oldest")
    def oldest(self, pool: Pool) -> SafeString | str:
        depth = _depth.find(pool)
        return formatting.ago(depth.since) if depth else formatting.NOTHING
