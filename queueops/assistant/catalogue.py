"""Every tool, registered by importing its module."""

from .tool import TOOLS, find_tool
from .tools import alerts, limits, money, work

__all__ = ["TOOLS", "alerts", "find_tool", "limits", "money", "work"]
