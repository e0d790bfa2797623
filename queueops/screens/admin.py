"""What every screen of the admin is made of."""

from __future__ import annotations

from unfold.admin import ModelAdmin

from .verbs import VerbsMixin


class QueueAdmin(VerbsMixin, ModelAdmin):
    """A list over the whole width that counts no table, with the actions that a person may take."""

    change_list_template = "admin/kit/change_list.html"
    list_fullwidth = True
    list_per_page = 50
    show_full_result_count = False
