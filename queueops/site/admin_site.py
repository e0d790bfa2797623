"""The admin's site. Unlike unfold's own, it does not compare each tab with each entry of the side bar."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin import sites
from django.http import HttpRequest
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


class UnfoldConfig(BasicAppConfig):
    default = False  # settings name it

    def ready(self) -> None:
        admin.site = sites.site = QueueOpsSite()
