"""Money: what calls cost, what was spent, and budgets."""
