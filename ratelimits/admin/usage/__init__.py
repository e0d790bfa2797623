"""What users used of their allowances, month by month."""
