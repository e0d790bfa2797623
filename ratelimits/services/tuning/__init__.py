"""Limits changed: by people, by what providers say, and on trial."""
