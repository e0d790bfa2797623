"""Callers of the API: how they prove who they are, what they may do, and how often they may call."""
