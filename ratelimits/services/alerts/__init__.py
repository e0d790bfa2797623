"""What people are told of limits and allowances."""
