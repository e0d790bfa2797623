"""Layers around every request: bounds, waiting, logs."""
