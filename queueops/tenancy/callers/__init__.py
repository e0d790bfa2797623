"""Callers of the API: their proof, what it opens, and how often they may call."""
