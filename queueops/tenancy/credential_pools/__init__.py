"""Credentials that stand in for each other, and what their servers take."""
