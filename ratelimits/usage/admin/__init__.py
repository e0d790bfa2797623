"""Screens of what users used of their allowances, month by month."""
