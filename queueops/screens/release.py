"""The version, for the foot of each page."""

from __future__ import annotations

from django import template

from queueops.core.version import full_version

register = template.Library()
register.simple_tag(full_version, name="version")
