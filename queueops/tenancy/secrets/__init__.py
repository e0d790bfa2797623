"""Secrets: how they are sealed, signed and encrypted."""
