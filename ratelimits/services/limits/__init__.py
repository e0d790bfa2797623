"""Which limits there are, and how they are kept."""
