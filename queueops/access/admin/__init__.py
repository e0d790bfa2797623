"""Accounts, second factors and lock-outs: importing it registers their screens."""

from . import accounts

__all__ = ["accounts"]
