"""What users reserve and use of their allowances."""
