"""Allowances of users: reserving, using and reporting."""
