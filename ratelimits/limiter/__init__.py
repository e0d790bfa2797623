"""Deciding whether calls may go, and charging them."""
