"""Alerts of limits and allowances: opened, forecast, silenced."""
