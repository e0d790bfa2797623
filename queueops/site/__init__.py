"""Joins all apps into one installation. Only the settings name this package; no app imports it."""
