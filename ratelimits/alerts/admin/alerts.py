"""Alerts: which are open, what to do about them, and who looks after them."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import CharField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from queueops.core.runbooks import read_runbook
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.columns import time_column
from queueops.screens.filters import Choice, ProjectFilter
from queueops.screens.one_page import NewestPage
from queueops.screens.paging import as_uuid
from queueops.screens.verbs import ReadOnlyMixin, Verb, by_ids, on_one, on_selected, show_page
from queueops.tenancy.models import CredentialPool
from queueops.tenancy.user_labels import in_words
from ratelimits.alerts.alerts import acknowledge_alerts
from ratelimits.alerts.silences import silence_of
from ratelimits.models import AlertSilence, BudgetPeriod, Counter, Limit, QuotaAlert, UsageTracking
from ratelimits.usage.allowance_alerts import OF_ALLOWANCES

from .silences import SILENCE

STATES: dict[str, dict[str, Any]] = {
    "open": {"resolved_at": None, "acknowledged_at": None},
    "acknowledged": {"resolved_at": None, "acknowledged_at__isnull": False},
    "resolved": {"resolved_at__isnull": False},
}
MAX_TOLD_TOGETHER = 20
OF_ONE_CAUSE = ("cause", "grows")  # how subjects of alerts about one cause of dead letters begin
# The lists, each with the link's words, that hold what alerts of a kind are about; and pages whose key is the subject.
LISTS: dict[str, tuple[str, str]] = {
    QuotaAlert.Kind.OUTAGE: ("jobs_servicebreaker", "services that do not answer"),
    QuotaAlert.Kind.FORGOTTEN: ("jobs_pauseswitch", "what is paused"),
    QuotaAlert.Kind.STUCK_EXECUTOR: ("jobs_executor", "executors"),
    QuotaAlert.Kind.NO_EXECUTOR: ("jobs_executor", "executors"),
    QuotaAlert.Kind.OLDEST_READY: ("jobs_job", "queued jobs of {}"),
    QuotaAlert.Kind.FAILING: ("jobs_job", "jobs of {}"),
    QuotaAlert.Kind.DEAD_LETTERS: ("jobs_deadletter", "its dead letters"),
}
ROWS: dict[str, str] = {QuotaAlert.Kind.SCHEDULE: "jobs_schedule", QuotaAlert.Kind.OBJECTIVE: "jobs_objective"}
SIGNS = {
    "notice": ("blue", "info"),
    "warning": ("amber", "warning"),
    "critical": ("red", "error"),
}
STATE_SIGNS = {
    "open": ("red", "notifications_active"),
    "acknowledged": ("blue", "visibility"),
    "resolved": ("green", "check"),
}


ACKNOWLEDGE = Verb(
    name="acknowledge",
    permission="ratelimits.acknowledge_alert",
    label="Acknowledge",
    done="acknowledged",
    explains="Tells the others that you look after it. It stays until its cause is gone, and is sent again only if it"
    " gets worse.",
    icon="visibility",
    applies=lambda rows: rows.filter(acknowledged_at=None, resolved_at=None),
    unfit="acknowledged or resolved before",
    carry_out=by_ids(acknowledge_alerts),
)


class AlertStateFilter(Choice):
    title = "state"
    parameter_name = "state"
    choices_offered = [(state, state) for state in STATES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[QuotaAlert]) -> QuerySet[QuotaAlert]:
        return queryset.filter(**STATES.get(self.value() or "", {}))


class SeverityFilter(Choice):
    title = "severity"
    parameter_name = "severity"
    choices_offered = QuotaAlert.Severity.choices


class AlertKindFilter(Choice):
    title = "kind"
    parameter_name = "kind"
    choices_offered = QuotaAlert.Kind.choices


class AlertServiceFilter(Choice):
    title = "service"
    parameter_name = "service"
    column = "limit__service"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        services = Limit.objects.order_by("service").values_list("service", flat=True).distinct()
        return [(service, service) for service in services]


class AlertProjectFilter(ProjectFilter):
    def queryset(self, request: HttpRequest, queryset: QuerySet[QuotaAlert]) -> QuerySet[QuotaAlert]:
        project = self.value()
        return queryset.filter(QuotaAlert.about(project)) if project else queryset


@admin.register(QuotaAlert)
class QuotaAlertAdmin(ReadOnlyMixin, PageAdmin):
    list_display = ("told", "severity_shown", "state", "kind_shown", "since", "ends", "acknowledged")
    sortable_by = ()
    list_filter = (AlertStateFilter, SeverityFilter, AlertKindFilter, AlertServiceFilter, AlertProjectFilter)
    list_filter_submit = True
    list_select_related = ("limit",)
    list_before_template = "admin/ratelimits/quotaalert/states.html"
    empty_title = "No alerts."
    empty_hint = "Caps that come near, queues behind them, and workers or dead letters that need a person appear here."
    actions = ("acknowledge_selected",)
    actions_detail = ("acknowledge", "silence")

    acknowledge_selected, acknowledge = on_selected(ACKNOWLEDGE), on_one(ACKNOWLEDGE)
    silence = on_one(SILENCE)

    def audit_targets(self, row: QuotaAlert) -> list[str]:
        return [f"alert {row.pk}"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[NewestPage]:
        return NewestPage

    def get_queryset(self, request: HttpRequest) -> QuerySet[QuotaAlert]:
        person = User.objects.annotate(actor=Concat(Value("user:"), Cast("pk", CharField())))
        username = person.filter(actor=OuterRef("acknowledged_by")).values("username")[:1]
        return QuotaAlert.objects.annotate(username=Subquery(username)).order_by("-pk")

    def get_urls(self) -> list[Any]:
        return [self.page_at("runbook/<slug:kind>/", QuotaAlertAdmin.runbook, "runbook"), *super().get_urls()]

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        chosen = request.GET.get("state", "")
        return {
            "alert_states": [(state, _state_badge(state), state == chosen) for state in STATES],
            "all": not chosen,
            "silences": AlertSilence.objects.standing().count(),
        }

    def shown_of(self, request: HttpRequest, row: QuotaAlert) -> dict[str, Any]:
        return _page_of(row)

    def runbook(self, request: HttpRequest, kind: str) -> HttpResponse:
        """Show what to do about alerts of one kind."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if kind not in QuotaAlert.Kind.values:
            raise Http404
        title, sections = read_runbook(kind)
        context = {"title": title, "sections": sections}
        return show_page(self, request, "admin/ratelimits/quotaalert/runbook.html", context)

    @admin.display(description="alert")
    def told(self, alert: QuotaAlert) -> SafeString:
        return format_html('<span class="qo-told">{}</span>', alert.message)

    @admin.display(description="severity")
    def severity_shown(self, alert: QuotaAlert) -> SafeString:
        return formatting.badge(*SIGNS.get(alert.severity, formatting.LATER), alert.severity)

    @admin.display(description="state")
    def state(self, alert: QuotaAlert) -> SafeString:
        return _state_badge(state_of(alert))

    @admin.display(description="kind")
    def kind_shown(self, alert: QuotaAlert) -> SafeString:
        address = reverse("admin:ratelimits_quotaalert_runbook", args=[alert.kind])
        return format_html('{} <a class="qo-link" href="{}">runbook</a>', alert.kind.replace("_", " "), address)

    since = time_column("opened", "opened_at")

    @admin.display(description="forecast")
    def ends(self, alert: QuotaAlert) -> SafeString | str:
        return formatting.NOTHING if alert.resolved_at else formatting.ago(alert.forecast_at)

    @admin.display(description="acknowledged by")
    def acknowledged(self, alert: QuotaAlert) -> str:
        return _who(alert) if alert.acknowledged_at else formatting.NOTHING


def state_of(alert: QuotaAlert) -> str:
    if alert.resolved_at:
        return "resolved"
    return "acknowledged" if alert.acknowledged_at else "open"


def _who(alert: QuotaAlert) -> str:
    return getattr(alert, "username", None) or alert.acknowledged_by


def _state_badge(state: str) -> SafeString:
    return formatting.badge(*STATE_SIGNS[state], state)


def _page_of(alert: QuotaAlert) -> dict[str, Any]:
    title, sections = read_runbook(alert.kind)
    facts: list[tuple[str, Any]] = [("Kind", alert.get_kind_display())]
    if alert.limit is not None:
        key = alert.subject.partition(":")[2]
        counter = (
            formatting.link("ratelimits_counter", alert.subject, key) if admin.site.is_registered(Counter) else key
        )
        facts += [("Limit", _limit_link(alert.limit)), ("Service", alert.limit.service), ("Counts", counter)]
    else:
        facts.append(("About", _subject_link(alert) or alert.subject))
    if alert.kind == QuotaAlert.Kind.CREDENTIAL_REFUSED:
        jobs = [(formatting.link("jobs_job", one),) for one in (alert.figures or {}).get("jobs", ()) if as_uuid(one)]
        facts.append(("Last refused", format_html_join(" ", "{}", jobs)))
    if alert.threshold:
        facts.append(("Threshold", f"{alert.threshold} %"))
    facts.append(("Opened", formatting.ago(alert.opened_at)))
    if alert.forecast_at and not alert.resolved_at:
        words = "Clears" if alert.kind == QuotaAlert.Kind.SATURATED else "Reaches the cap"
        facts.append((f"{words} (forecast)", formatting.ago(alert.forecast_at)))
    if alert.acknowledged_at:
        facts.append(("Acknowledged", format_html("{} by {}", formatting.ago(alert.acknowledged_at), _who(alert))))
    if alert.resolved_at:
        facts.append(("Resolved", formatting.ago(alert.resolved_at)))
    silences = [] if alert.resolved_at else list(AlertSilence.objects.standing().select_related("limit"))
    if silence := silence_of(alert, silences):
        facts.append(("Silenced", format_html("ends {}: {}", formatting.ago(silence.until), silence.reason)))
    facts.append(("Handed to its routes", formatting.ago(alert.notified_at)))
    first = alert.told_with or alert.pk
    others = QuotaAlert.objects.filter(Q(pk=first) | Q(told_with=first)).exclude(pk=alert.pk).order_by("pk")
    if links := [
        (formatting.link("ratelimits_quotaalert", one.pk, _apart(one)),) for one in others[:MAX_TOLD_TOGETHER]
    ]:
        facts.append(("Told in one message with", format_html_join(", ", "{}", links)))
    return {
        "alert": alert,
        "severity": formatting.badge(*SIGNS.get(alert.severity, formatting.LATER), alert.severity),
        "state": _state_badge(state_of(alert)),
        "facts": facts,
        "figures": json.dumps(alert.figures, indent=2, ensure_ascii=False) if alert.figures else "",
        "runbook_title": title,
        "sections": sections,
        "title": f"Alert {alert.pk}",
    }


def _apart(alert: QuotaAlert) -> str:
    """The projects of an alert, or its number, to tell it apart from other alerts in the same message."""
    return ", ".join(sorted(alert.projects)) or f"alert {alert.pk}"


def _subject_link(alert: QuotaAlert) -> SafeString | None:
    """Link to the screen on which people look at the alert's subject and steer it."""
    kinds, figures = QuotaAlert.Kind, alert.figures or {}
    if alert.kind == kinds.PROVIDER_BATCH and "provider_batch" in figures:
        identifier = figures["provider_batch"]
        return formatting.link("jobs_providerbatch", identifier, figures.get("provider_id") or identifier)
    if alert.kind == kinds.BUDGET:
        period = BudgetPeriod.objects.filter(pk=alert.subject.rpartition("/")[2]).select_related("budget").first()
        return (
            formatting.link("ratelimits_budget", period.budget_id, f"budget {period.budget.name}") if period else None
        )
    if alert.kind == kinds.CREDENTIAL_REFUSED:
        pools = CredentialPool.objects.filter(name__in=figures.get("pools", ()))
        links = [(formatting.link("tenancy_credentialpool", pool.pk, pool.name),) for pool in pools.order_by("name")]
        return format_html("{} of {}", alert.subject, format_html_join(", ", "{}", links)) if links else None
    if alert.kind == kinds.MISSING_PRICE and figures.get("model"):
        prices = reverse("admin:ratelimits_price_changelist") + "?" + urlencode({"q": figures["model"]})
        return format_html('<a class="qo-link" href="{}">prices of {}</a>', prices, figures["model"])
    return _work_link(alert) or _month_link(alert)


def _work_link(alert: QuotaAlert) -> SafeString | None:
    """Link to the work that the alert is about, on which its runbook has people act; None: no screen lists it."""
    kinds, figures = QuotaAlert.Kind, alert.figures or {}
    if alert.kind == kinds.GUARD and "batch" in figures:
        return formatting.link("jobs_batch", figures["batch"], "the batch")
    if alert.kind in ROWS:
        return formatting.link(ROWS[alert.kind], alert.subject, f"the {alert.kind}")
    if alert.kind not in LISTS:
        return None
    narrowed: dict[str, str] = {}
    if alert.kind == kinds.DEAD_LETTERS:
        sort, _, about = alert.subject.partition(":")
        narrowed = {"project": figures["projects"][0]} if figures.get("projects") else {}
        narrowed |= {"fingerprint": about.partition("/")[0]} if sort in OF_ONE_CAUSE else {}
    elif alert.kind == kinds.OLDEST_READY:
        narrowed = {"project": alert.subject, "state": "queued"}
    elif alert.kind == kinds.FAILING:
        narrowed = {"service": alert.subject}
    screen, words = LISTS[alert.kind]
    address = reverse(f"admin:{screen}_changelist") + (f"?{urlencode(narrowed)}" if narrowed else "")
    return format_html('<a class="qo-link" href="{}">{}</a>', address, words.format(alert.subject))


def _month_link(alert: QuotaAlert) -> SafeString | None:
    """Link to the user's month that an allowance's alert is about; None once the month is deleted."""
    if alert.kind not in OF_ALLOWANCES:
        return None
    month, project_id, user_id = alert.subject.split("/")
    found = UsageTracking.objects.filter(project_id=project_id, user_id=user_id, month_year=month).first()
    who = in_words([user_id], project_id=project_id)[user_id]
    return formatting.link("ratelimits_usagetracking", found.pk, f"{who}, {month}") if found else None


def _limit_link(limit: Limit) -> SafeString | str:
    if not admin.site.is_registered(Limit):
        return limit.name
    return formatting.link("ratelimits_limit", limit.pk, limit.name)
