"""Modifiers: they make a limit's capacity smaller for a while."""
