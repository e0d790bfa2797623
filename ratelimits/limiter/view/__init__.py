"""How limits stand, for people and forecasts."""
