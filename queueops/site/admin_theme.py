"""How unfold dresses the admin: names, colours, the sidebar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from django import template
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import get_script_prefix, reverse, reverse_lazy
from django.utils.text import capfirst

from jobs.features import FEATURES

register = template.Library()


def _allowed(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


Tab = tuple[str, str, str | None]
"""A screen's name, its model as `<app>_<model>`, and who may see it; None: superusers only."""

# The side bar's entries, each with its screens. With `_navigation`'s two dashboards there are fifteen, few enough to
# read at a glance. Features add screens to entries, but no entries.
ENTRIES: tuple[tuple[str, str, tuple[Tab, ...]], ...] = (
    ("Jobs", "list_alt", (("Jobs", "jobs_job", "jobs.view_job"),)),
    (
        "Batches",
        "stacks",
        (("Batches", "jobs_batch", "jobs.view_batch"),),
    ),
    ("Uploads", "upload_file", ()),
    (
        "Dead letters",
        "report",
        (
            ("Dead letters", "jobs_deadletter", "jobs.view_deadletter"),
            ("Bulk operations", "jobs_bulkoperation", "jobs.view_bulkoperation"),
        ),
    ),
    (
        "Alerts",
        "notifications",
        (
            ("Alerts", "ratelimits_quotaalert", "ratelimits.view_quotaalert"),
            ("Silences", "ratelimits_alertsilence", "ratelimits.view_alertsilence"),
            ("Routes", "ratelimits_alertroute", "ratelimits.view_alertroute"),
        ),
    ),
    (
        "Pauses",
        "pause_circle",
        (
            ("Pauses", "jobs_pauseswitch", "jobs.view_pauseswitch"),
            ("Ramp", "ratelimits_resumeramp", "ratelimits.view_resumeramp"),
        ),
    ),
    (
        "Limits",
        "speed",
        (
            ("Limits", "ratelimits_limit", "ratelimits.view_limit"),
            ("Counters", "ratelimits_counter", "ratelimits.view_counter"),
        ),
    ),
    (
        "Allowances",
        "savings",
        (
            ("Allowances", "ratelimits_allowance", "ratelimits.view_allowance"),
            ("Usage", "ratelimits_usagetracking", "ratelimits.view_usagetracking"),
            ("Overrides", "ratelimits_allowanceoverride", "ratelimits.view_allowanceoverride"),
            ("Reservations", "ratelimits_usagereservation", "ratelimits.view_usagereservation"),
            ("Events", "ratelimits_usageevent", "ratelimits.view_usageevent"),
        ),
    ),
    (
        "Money",
        "payments",
        (
            ("Spend", "ratelimits_spend", "ratelimits.view_spend"),
            ("Budgets", "ratelimits_budget", "ratelimits.view_budget"),
            ("Prices", "ratelimits_price", "ratelimits.view_price"),
        ),
    ),
    (
        "Rules",
        "tune",
        (
            ("Retry policies", "jobs_retrypolicy", "jobs.view_retrypolicy"),
            ("Aging rules", "jobs_agingrule", "jobs.view_agingrule"),
        ),
    ),
    (
        "Projects",
        "apartment",
        (
            ("Projects", "tenancy_project", "tenancy.view_project"),
            ("Keys", "tenancy_producerkey", "tenancy.view_producerkey"),
            ("Issuers", "tenancy_issuer", "tenancy.view_issuer"),
            ("Credentials", "tenancy_credential", "tenancy.view_credential"),
            ("Credential pools", "tenancy_credentialpool", "tenancy.view_credentialpool"),
            ("Model routes", "door_modelroute", "door.view_modelroute"),
        ),
    ),
    (
        "Executors",
        "memory",
        (
            ("Executors", "jobs_executor", "jobs.view_executor"),
            ("House-keeping", "django_q_schedule", None),
            ("Queued tasks", "django_q_ormq", None),
            ("Failed tasks", "django_q_failure", None),
            ("Finished tasks", "django_q_success", None),
        ),
    ),
    (
        "People",
        "group",
        (
            ("Users", "auth_user", "auth.view_user"),
            ("Roles", "auth_group", "auth.view_group"),
            ("Personal tokens", "access_personaltoken", "access.view_personaltoken"),
            ("Failed sign-ins", "access_signincount", "access.view_signincount"),
            ("Audit trail", "audit_auditentry", "audit.view_auditentry"),
        ),
    ),
)


def _with_features() -> tuple[tuple[str, str, tuple[Tab, ...]], ...]:
    """Return the entries, with each feature's tabs inserted: first in an entry, or after another tab."""
    entries = {title: (icon, list(tabs)) for title, icon, tabs in ENTRIES}
    for added in (tab for feature in FEATURES for tab in feature.tabs):
        app, _, model = added.model.partition("_")
        tab: Tab = (added.title, added.model, f"{app}.view_{model}")
        if added.after in entries:
            entries[added.after][1].insert(0, tab)
            continue
        tabs, place = next(
            (tabs, place)
            for _, tabs in entries.values()
            for place, (_, model, _) in enumerate(tabs, start=1)
            if model == added.after
        )
        tabs.insert(place, tab)
    return tuple((title, icon, tuple(tabs)) for title, (icon, tabs) in entries.items())


ROOMS = _with_features()


@cache
def _list_address(model: str, script_prefix: str) -> str:
    return reverse(f"admin:{model}_changelist")


def _address(tab: Tab) -> str:
    return _list_address(tab[1], get_script_prefix())  # cached: a page compares some hundred pairs of addresses


@register.filter
def menu_words(part: Mapping[str, Any]) -> str:
    """Return the words of a breadcrumb: for a list that the menu has, the menu's word, and not the table's name."""
    link = str(part.get("link", ""))
    titles = (tab[0] for _, _, tabs in ROOMS for tab in tabs if _address(tab) == link)
    return str(next(titles, part["title"]))


@register.filter
def list_words(opts: Any) -> str:
    """Return the browser's title of a list; Django's would be "Select quota alert to view"."""
    link = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    return capfirst(menu_words({"link": link, "title": opts.verbose_name_plural}))


def _may_see(request: HttpRequest, tab: Tab) -> bool:
    return _allowed(tab[2])(request) if tab[2] else bool(request.user.is_superuser)


def _entry(request: HttpRequest, title: str, icon: str, tabs: Sequence[Tab]) -> dict[str, Any]:
    """Return an entry of the side bar: it leads to the first of its screens that the person may see."""
    seen = [_address(tab) for tab in tabs if _may_see(request, tab)]
    return {
        "title": title,
        "icon": icon,
        "link": seen[0] if seen else "",
        "active": any(request.path.startswith(_address(tab)) for tab in tabs),
        "permission": lambda _: bool(seen),
    }


def _navigation(request: HttpRequest) -> list[dict[str, Any]]:
    dashboard = {
        "title": "Live dashboard",
        "icon": "bolt",
        "link": reverse("dashboard"),
        "active": False,  # otherwise unfold would mark it on every page, as each address begins with its link
        "permission": _allowed("jobs.view_job"),
    }
    overview = {"title": "Overview", "icon": "monitoring", "link": reverse("admin:index")}
    return [{"items": [dashboard, overview]}, {"items": [_entry(request, *room) for room in ROOMS]}]


def _tabs(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the screens of one entry, as tabs above each of their lists."""

    def item(tab: Tab) -> dict[str, Any]:
        address = _address(tab)
        return {
            "title": tab[0],
            "link": address,
            "active": request.path.startswith(address),
            "has_permission": _may_see(request, tab),
        }

    return [
        {"models": [".".join(tab[1].rsplit("_", 1)) for tab in tabs], "items": [item(tab) for tab in tabs]}
        for _, _, tabs in ROOMS
        if len(tabs) > 1
    ]


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
    "SCRIPTS": [lambda request: static("jobs/pages.js")],
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
    # Functions, called for each request, return addresses as texts. Unfold would resolve a lazy address at each
    # comparison.
    "TABS": _tabs,
    "SIDEBAR": {"show_search": False, "navigation": _navigation},
}
