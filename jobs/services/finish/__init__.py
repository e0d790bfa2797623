"""How a claimed job ends, and what follows from it."""
