"""The admin's site. Unlike unfold's site, it does not compare each tab with each entry of the side bar."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin import sites
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold.apps import BasicAppConfig
from unfold.sites import UnfoldAdminSite


class QueueOpsSite(UnfoldAdminSite):
    def _get_is_tab_active(self, request: HttpRequest, tabs: list[dict[str, Any]], link: str) -> bool:
        """Return False: the entries of admin_theme.py already say whether one of their tabs is open."""
        return False

    def get_tabs_list(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return the tabs that admin_theme.py makes for this request, without unfold's copies and comparisons."""
        tabs: list[dict[str, Any]] = self._get_config("TABS", request)
        return tabs

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show unfold's page with our own form: unfold's form would check the old password without the guard."""
        from queueops.access.views.change_password import ChangePassword  # its models load after this module

        request.current_app = self.name  # the page's links lead to this site
        page = ChangePassword.as_view(
            success_url=reverse("admin:password_change_done", current_app=self.name),
            extra_context={**self.each_context(request), **(extra_context or {})},
        )
        response = page(request)
        assert isinstance(response, HttpResponse)  # noqa: S101 (narrows the type)
        return response


class UnfoldConfig(BasicAppConfig):
    default = False  # settings name it

    def ready(self) -> None:
        admin.site = sites.site = QueueOpsSite()
