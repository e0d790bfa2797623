"""Screens of money: prices, what was spent, and budgets."""
