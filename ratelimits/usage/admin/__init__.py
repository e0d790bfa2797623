"""Screens of allowances, and of what users used of them, month by month."""
