"""How unfold dresses the admin: names, colours, the sidebar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


def _allowed(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


def _superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_superuser)


def _item(title: str, icon: str, screen: str, permission: str | None) -> dict[str, Any]:
    """An entry of the sidebar. `permission` None: superusers only."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{screen}_changelist"),
        "permission": _allowed(permission) if permission else _superuser,
    }


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "QueueOps",
    "SITE_HEADER": "QueueOps",
    "SITE_SYMBOL": "conveyor_belt",
    "SITE_URL": reverse_lazy("dashboard"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("dashboards/icon.svg")},
    ],
    "SHOW_HISTORY": False,
    "SHOW_BACK_BUTTON": True,
    "DASHBOARD_CALLBACK": "dashboards.admin.front_page.front_page",
    "STYLES": [lambda request: static("jobs/admin.css")],
    "SCRIPTS": [lambda request: static("jobs/accessibility.js")],
    "ACCOUNT": {
        "navigation": [
            {"title": "Change password", "link": reverse_lazy("admin:password_change")},
            {"title": "Second factor", "link": reverse_lazy("access:second-factor")},
        ],
    },
    "COLORS": {
        "primary": {
            "50": "oklch(97% .014 250)",
            "100": "oklch(93.2% .032 250)",
            "200": "oklch(88.2% .059 250)",
            "300": "oklch(80.9% .105 250)",
            "400": "oklch(70.7% .15 252)",
            "500": "oklch(62.3% .19 256)",
            "600": "oklch(54.6% .2 260)",
            "700": "oklch(48.8% .2 262)",
            "800": "oklch(42.4% .18 263)",
            "900": "oklch(37.9% .14 264)",
            "950": "oklch(28.2% .09 266)",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "navigation": [
            {
                "items": [
                    {
                        "title": "Live dashboard",
                        "icon": "bolt",
                        "link": reverse_lazy("dashboard"),
                        "active": False,  # its address begins every other
                        "permission": _allowed("jobs.view_job"),
                    },
                    {"title": "Overview", "icon": "monitoring", "link": reverse_lazy("admin:index")},
                ],
            },
            {
                "title": "Work",
                "items": [
                    _item("Jobs", "list_alt", "jobs_job", "jobs.view_job"),
                    _item("Batches", "stacks", "jobs_batch", "jobs.view_batch"),
                    _item("Uploads", "upload_file", "jobs_upload", "jobs.view_upload"),
                    _item("Dead letters", "report", "jobs_deadletter", "jobs.view_deadletter"),
                    _item("Bulk operations", "checklist", "jobs_bulkoperation", "jobs.view_bulkoperation"),
                    _item("Alerts", "notifications", "ratelimits_quotaalert", "ratelimits.view_quotaalert"),
                ],
            },
            {
                "title": "Steering",
                "items": [
                    _item("Pauses", "pause_circle", "jobs_pauseswitch", "jobs.view_pauseswitch"),
                    _item("Aging rules", "trending_up", "jobs_agingrule", "jobs.view_agingrule"),
                    _item("Retry policies", "replay", "jobs_retrypolicy", "jobs.view_retrypolicy"),
                    _item("Executors", "memory", "jobs_executor", "jobs.view_executor"),
                    _item("Service outages", "cloud_off", "jobs_servicebreaker", "jobs.view_servicebreaker"),
                ],
            },
            {
                "title": "Quotas",
                "items": [
                    _item("Limits", "speed", "ratelimits_limit", "ratelimits.view_limit"),
                    _item("Counters", "timer", "ratelimits_counter", "ratelimits.view_counter"),
                ],
            },
            {
                "title": "Allowances",
                "items": [
                    _item("Allowances", "savings", "ratelimits_allowance", "ratelimits.view_allowance"),
                    _item("Usage", "data_usage", "ratelimits_usagetracking", "ratelimits.view_usagetracking"),
                    _item("Overrides", "tune", "ratelimits_allowanceoverride", "ratelimits.view_allowanceoverride"),
                    _item(
                        "Reservations",
                        "bookmark_manager",
                        "ratelimits_usagereservation",
                        "ratelimits.view_usagereservation",
                    ),
                    _item("Usage events", "receipt_long", "ratelimits_usageevent", "ratelimits.view_usageevent"),
                ],
            },
            {
                "title": "Projects",
                "items": [
                    _item("Projects", "apartment", "tenancy_project", "tenancy.view_project"),
                    _item("Keys", "key", "tenancy_producerkey", "tenancy.view_producerkey"),
                    _item("Issuers", "badge", "tenancy_issuer", "tenancy.view_issuer"),
                    _item("Credentials", "passkey", "tenancy_credential", "tenancy.view_credential"),
                    _item("Webhooks", "webhook", "jobs_webhook", "jobs.view_webhook"),
                    _item("Deliveries", "outbox", "jobs_webhookdelivery", "jobs.view_webhookdelivery"),
                ],
            },
            {
                "title": "System",
                "collapsible": True,
                "items": [
                    _item("Alert routes", "forward_to_inbox", "ratelimits_alertroute", "ratelimits.view_alertroute"),
                    _item("Audit trail", "history", "audit_auditentry", "audit.view_auditentry"),
                    _item("Users", "person", "auth_user", "auth.view_user"),
                    _item("Roles", "group", "auth_group", "auth.view_group"),
                    _item("Failed sign-ins", "lock", "access_signincount", "access.view_signincount"),
                    _item("Schedules", "event_repeat", "django_q_schedule", None),
                    _item("Queued tasks", "inbox", "django_q_ormq", None),
                    _item("Failed tasks", "error", "django_q_failure", None),
                    _item("Finished tasks", "task_alt", "django_q_success", None),
                ],
            },
        ],
    },
}
