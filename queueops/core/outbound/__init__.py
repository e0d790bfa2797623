"""Calls to addresses that others name: which are allowed, and how they are made."""
