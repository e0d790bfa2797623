"""Screens of money: prices, and what was spent."""
