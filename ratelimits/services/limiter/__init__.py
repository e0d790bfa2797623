"""Whether calls may go, and what they are charged."""
