"""Imports the modules of all tools, which registers them."""

from .tool import TOOLS, find_tool
from .tools import alerts, changes, limits, money, projects, work

__all__ = ["TOOLS", "alerts", "changes", "find_tool", "limits", "money", "projects", "work"]
