"""The limits that exist, and how they are stored and read."""
